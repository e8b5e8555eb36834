"""Finds private keys and tokens of well-known services, by their form, their alphabet and their randomness.

The finding quotes the line only up to the first characters of the secret, so that the secret itself is not copied into
stored findings. Lock files and files named as examples are left alone.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from outpost_lsp.domain.finding import Severity
from outpost_lsp.models.rule_based.analysis import RawFinding, SourceText
from outpost_lsp.reviews.rules.placed import Placed
from outpost_lsp.reviews.rules.table import CONFIDENCE

_SHOWN: Final = 4
_LONGEST_LINE: Final = 4_000


@dataclass(frozen=True, slots=True)
class _Form:
    """How a secret looks. `entropy` is the least number of bits per character of its random part, group 1."""

    name: str
    hint: str
    pattern: re.Pattern[str]
    entropy: float = 3.0
    severity: Severity = "error"


def _form(name: str, hint: str, pattern: str, entropy: float = 3.0, severity: Severity = "error") -> _Form:
    return _Form(name, hint, re.compile(rf"(?<![A-Za-z0-9_]){pattern}(?![A-Za-z0-9_])"), entropy, severity)


_FORMS: Final = (
    _form("an AWS access key", "A", r"(?:AKIA|ASIA|ABIA|ACCA)([A-Z2-7]{16})"),
    _form("a GitHub token", "gh", r"gh[pousr]_([A-Za-z0-9]{36,255})"),
    _form("a GitHub token", "github_pat_", r"github_pat_([A-Za-z0-9]{22}_[A-Za-z0-9]{59})"),
    _form("a GitLab token", "glpat-", r"glpat-([A-Za-z0-9_-]{20,64})"),
    _form("a Slack token", "xox", r"xox[abeoprs]-([0-9]{8,14}-[0-9A-Za-z-]{16,250})"),
    _form("a Slack token", "xapp-", r"xapp-\d-([A-Z0-9]+-\d+-[a-z0-9]{40,80})"),
    _form(
        "a Slack webhook",
        "hooks.slack.com",
        r"hooks\.slack\.com/services/T[A-Z0-9]{6,12}/B[A-Z0-9]{6,12}/([A-Za-z0-9]{22,26})",
    ),
    _form("a Stripe key", "k_live_", r"[rs]k_live_([A-Za-z0-9]{20,128})"),
    _form("a webhook secret", "whsec_", r"whsec_([A-Za-z0-9+/=]{32,64})"),
    _form("a Google API key", "AIza", r"AIza([A-Za-z0-9_-]{35})"),
    _form("a Google client secret", "GOCSPX-", r"GOCSPX-([A-Za-z0-9_-]{28})"),
    _form("an OpenAI key", "T3BlbkFJ", r"sk-([A-Za-z0-9_-]{20,90}T3BlbkFJ[A-Za-z0-9_-]{20,90})"),
    _form("an OpenAI key", "sk-", r"sk-(?:proj|svcacct|admin)-([A-Za-z0-9_-]{40,180})"),
    _form("an OpenAI key", "sk-", r"sk-([A-Za-z0-9]{48})", 4.0),
    _form("an Anthropic key", "sk-ant-", r"sk-ant-(?:api|admin)\d\d-([A-Za-z0-9_-]{80,110})"),
    _form("an npm token", "npm_", r"npm_([A-Za-z0-9]{36})"),
    _form("a PyPI token", "pypi-", r"pypi-AgEIcHlwaS5vcmc([A-Za-z0-9_-]{50,1000})"),
    _form("a SendGrid key", "SG.", r"SG\.([A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43})"),
    _form("a Mailgun key", "key-", r"key-([0-9a-f]{32})"),
    _form("a Mailchimp key", "-us", r"([0-9a-f]{32}-us\d{1,2})"),
    _form("a DigitalOcean token", "_v1_", r"do[opr]_v1_([a-f0-9]{64})"),
    _form("a Shopify token", "shp", r"shp(?:at|ca|pa|ss)_([a-fA-F0-9]{32})"),
    _form("a Hugging Face token", "hf_", r"hf_([A-Za-z0-9]{34,40})"),
    _form("a Databricks token", "dapi", r"dapi([a-f0-9]{32}(?:-\d)?)"),
    _form("a Telegram bot token", ":AA", r"\d{8,10}:(AA[A-Za-z0-9_-]{33})"),
    _form("a Discord webhook", "/api/webhooks/", r"discord(?:app)?\.com/api/webhooks/\d{17,20}/([A-Za-z0-9_-]{60,72})"),
    _form("an Azure storage key", "AccountKey=", r"AccountKey=([A-Za-z0-9+/]{86}==)", 4.0),
    _form("an age key", "AGE-SECRET-KEY-1", r"AGE-SECRET-KEY-1([0-9QPZRYXGFTVDWSJNKHCEMUAL]{58})"),
    _form("a Vault token", "hvs.", r"hvs\.([A-Za-z0-9_-]{24,160})"),
    _form("a Terraform token", ".atlasv1.", r"([A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_-]{60,70})"),
    _form("a Linear key", "lin_api_", r"lin_api_([A-Za-z0-9]{40})"),
    _form("an Atlassian token", "ATATT3", r"ATATT3([A-Za-z0-9_=-]{150,250})"),
    _form("a Figma token", "figd_", r"figd_([A-Za-z0-9_-]{40})"),
    _form("a Grafana token", "glsa_", r"glsa_([A-Za-z0-9]{32}_[a-fA-F0-9]{8})"),
    _form("a New Relic key", "NRAK-", r"NRAK-([A-Z0-9]{27})"),
    _form("a Docker token", "dckr_", r"dckr_(?:pat|oat)_([A-Za-z0-9_-]{27,60})"),
    _form("a Postman key", "PMAK-", r"PMAK-([a-f0-9]{24}-[a-f0-9]{34})"),
    _form("a RubyGems key", "rubygems_", r"rubygems_([a-f0-9]{48})"),
    _form("a Notion token", "ntn_", r"ntn_([A-Za-z0-9]{40,50})"),
    _form("a Square token", "EAAA", r"(EAAA[A-Za-z0-9_-]{60})"),
    _form("a Twilio key", "SK", r"(?i:twilio)[^\n]{0,40}?[\"'=: ](SK[0-9a-f]{32})"),
    _form(
        "an AWS secret key",
        "ecret",
        r"(?i:aws_?secret_?(?:access_?)?key)[\"']?\s*(?:[=:]|=>)\s*[\"']?([A-Za-z0-9/+]{40})",
        4.0,
    ),
    _form(
        "a password in an address",
        "://",
        r"(?:postgres(?:ql)?|mysql|mariadb|mongodb(?:\+srv)?|rediss?|amqps?|https?|ftps?|smtps?)://"
        r"[A-Za-z0-9_.+-]{1,64}:([^\s:/@\"'`<>{}$%*]{8,128})@(?!localhost|127\.|0\.0|\[|[^/\s\"'`]*\b(?:example|test|local|invalid)\b)"
        r"[A-Za-z0-9-]+\.[A-Za-z0-9.-]+",
        2.8,
        "warning",
    ),
    _form(
        "a credential",
        "",
        r"(?i:[a-z0-9_.-]{0,40}(?:secret|api_?key|apikey|access_?key|auth_?token|access_?token|passw(?:or)?d|private_?token)"
        r"[a-z0-9_]{0,20})[\"']?\s*(?::=|=>|[=:])\s*[\"']([A-Za-z0-9+/=_.~-]{20,128})[\"']",
        4.0,
        "warning",
    ),
)
_CONTEXT: Final = re.compile(r"secret|key|token|passw", re.IGNORECASE)
_PRIVATE_KEY: Final = re.compile(
    r"-----BEGIN (?:RSA |EC |DSA |OPENSSH |ENCRYPTED |PGP )?PRIVATE KEY(?: BLOCK)?-----"
    r"(?:\s|\\r|\\n|[\"'+,|]|[A-Za-z-]+: [^\n]*\n)*([A-Za-z0-9+/=]{32,})"
)
_NOT_LOOKED_AT: Final = re.compile(
    r"(?:^|/)(?:[^/]*\.lock|[^/]*lock\.(?:json|yaml|yml)|go\.sum|npm-shrinkwrap\.json|\.secrets\.baseline)\Z"
    r"|example|sample|template|fixture|testdata|(?:^|[/_.-])(?:dummy|fake|mock)",
    re.IGNORECASE,
)
_MADE_UP: Final = re.compile(
    r"example|sample|dummy|fake|changeme|placeholder|your[_-]|redacted|xxxx|0000|1234567|abcdef|testtest|notreal|not-a-"
    r"|(.)\1{5}|<|\.\.\.",
    re.IGNORECASE,
)


def secrets(source: SourceText) -> list[Placed]:
    """One finding per secret."""
    if _NOT_LOOKED_AT.search(source.path):
        return []
    text = source.text
    forms = [form for form in _FORMS if (form.hint in text if form.hint else _CONTEXT.search(text))]
    found: dict[int, Placed] = {}
    for match in _PRIVATE_KEY.finditer(text) if "PRIVATE KEY" in text else ():
        if not _MADE_UP.search(match[1]) and _entropy(match[1]) >= 3.5:
            line = text.count("\n", 0, match.start()) + 1
            found[line] = _placed(text, line, match.start(), match.start() + 11, "a private key", "error")
    if not forms:
        return list(found.values())
    offset = 0
    for number, words in enumerate(text.split("\n"), 1):
        form_and_match = None if len(words) > _LONGEST_LINE or number in found else _first_secret(words, forms)
        if form_and_match is not None:
            form, match = form_and_match
            start = offset + (match.start(1) if form.severity == "warning" else match.start())
            found[number] = _placed(text, number, start, start + _SHOWN, form.name, form.severity)
        offset += len(words) + 1
    return list(found.values())


def _first_secret(words: str, forms: Sequence[_Form]) -> tuple[_Form, re.Match[str]] | None:
    for form in forms:
        if form.hint in words and (match := form.pattern.search(words)) and _is_random(match[1], form):
            return form, match
    return None


def _is_random(value: str, form: _Form) -> bool:
    if _MADE_UP.search(value):
        return False
    if form.name == "a credential":
        return _is_mixed(value, form.entropy)
    return _entropy(value) >= form.entropy


def _is_mixed(value: str, entropy: float) -> bool:
    # Words, paths and names of things are no credentials: digits must stand among letters of both cases.
    if re.fullmatch(r"[0-9a-f]{32,128}|[0-9A-F]{32,128}", value):
        return _entropy(value) >= 3.4
    counts = [sum(map(test, value)) for test in (str.isdigit, str.isupper, str.islower)]
    runs = re.findall(r"[A-Za-z]{9,}", value)
    return min(counts) >= 3 and _entropy(value) >= entropy and not any(run.islower() or run.isupper() for run in runs)


def _entropy(value: str) -> float:
    counts = Counter(value)
    return -sum(count / len(value) * math.log2(count / len(value)) for count in counts.values())


def _placed(text: str, line: int, start: int, end: int, name: str, severity: Severity) -> Placed:
    first = text.rfind("\n", 0, start) + 1
    quote = text[first:end]
    finding = RawFinding(
        rule="secret",
        code="secret-in-code",
        severity=severity,
        title=f"Whoever can read the repository has {name}",
        detail="Revoke it, since the history keeps it, and read it from the environment or a secret store. "
        "Found by its form; the quote leaves the secret itself out.",
        line=line,
        quote=quote,
        key=name,
        confidence=CONFIDENCE[severity],
    )
    return Placed(finding, (line, start - first + 1), (line, end - first + 1))
