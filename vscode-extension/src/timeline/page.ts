/** The frame of the timeline's page: nothing is loaded but its own script and style, and nothing from the network. */

export interface Sources {
  readonly cspSource: string;
  readonly script: string;
  readonly style: string;
  readonly nonce: string;
}

export function page({ cspSource, script, style, nonce }: Sources): string {
  const policy = `default-src 'none'; style-src ${cspSource}; script-src 'nonce-${nonce}'`;
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="stylesheet" href="${style}">
<title>Outpost timeline</title>
</head>
<body>
<header>
<h1 id="title"></h1>
<p id="status" role="status"></p>
<p id="facts"></p>
<p id="error" class="error" hidden></p>
<div id="actions" role="toolbar" aria-label="Actions on this run"></div>
</header>
<main>
<ul id="notes" class="notes" aria-label="Notes"></ul>
<table id="usage" hidden><caption>Tokens by agent</caption><tbody></tbody></table>
<div id="steps" role="feed" aria-label="Steps"></div>
<section id="answer" hidden><h2>Answer</h2><pre></pre></section>
</main>
<script nonce="${nonce}" src="${script}"></script>
</body>
</html>`;
}
