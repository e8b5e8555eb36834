"""Serves the mock of jevcompat many times over: once for each fault it knows, with a key, and too busy.

Runs in the environment of the third-party servers. Prints {"fault or name": base URL} and serves until its input ends.
"""

import json
import sys
import threading

from jevcompat.mock import FAULTS, MockConfig, make_server
from jevcompat.proxy import ProxyConfig
from jevcompat.proxy import make_server as make_proxy


def serve(server):
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_address[1]}/v1"


def main():
    configurations = {fault: MockConfig(faults=frozenset({fault})) for fault in FAULTS}
    with_key = {
        fault: MockConfig(key="right", faults=frozenset({fault})) for fault in FAULTS if fault.startswith("auth-")
    }
    configurations.update({f"{fault} with a key": given for fault, given in with_key.items()})
    configurations["clean"] = MockConfig()
    configurations["key"] = MockConfig(key="right")
    configurations["busy"] = MockConfig(busy_every=1)
    configurations["sampled"] = MockConfig(sampled=True)
    configurations["noisy"] = MockConfig(noise=1.0)
    addresses = {name: serve(make_server(given)) for name, given in configurations.items()}
    for upstream in sys.argv[1:]:
        addresses[f"proxy of {upstream}"] = serve(make_proxy(ProxyConfig(upstream=upstream, upstream_model="auto")))
    print(json.dumps(addresses), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
