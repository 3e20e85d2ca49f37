"""Headless Chromium over chromedriver's own protocol: just what the tests of the page ask of it."""

import base64
import json
import re
import shutil
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
)


class Browser:
    """One tab."""

    def __init__(self, driver: str, profile: str) -> None:
        wanted = {
            "goog:chromeOptions": {"args": [*FLAGS, f"--user-data-dir={profile}"], "binary": shutil.which("chromium")},
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
            "timeouts": {"script": 10_000, "pageLoad": 20_000},
        }
        self._base = f"{driver}/session"
        session = self._call("POST", "", {"capabilities": {"alwaysMatch": wanted}})
        self._base += f"/{session['sessionId']}"

    def open(self, url: str, *, width: int = 1280, height: int = 900, scheme: str = "light") -> None:
        """Open a page at a width in CSS pixels, in "light" or "dark"."""
        self.cdp(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        self.cdp("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.log("browser"), self.log("performance")
        self._call("POST", "/url", {"url": url})

    def run(self, script: str, *arguments: object) -> Any:
        """Run the body of a function and return what it returns."""
        return self._call("POST", "/execute/sync", {"script": script, "args": arguments})

    def run_async(self, script: str, *arguments: object) -> Any:
        """Run the body of a function, and return what it hands to its last argument."""
        return self._call("POST", "/execute/async", {"script": script, "args": arguments})

    def wait(self, expression: str) -> None:
        """Wait until a JavaScript expression is true; it is tried at each change of the document."""
        script = f"""
            const done = arguments[0], holds = () => ({expression});
            if (holds()) return done();
            const watch = new MutationObserver(() => holds() && (watch.disconnect(), done()));
            watch.observe(document, {{subtree: true, childList: true, attributes: true, characterData: true}});
        """
        self.run_async(script)

    def cdp(self, command: str, **parameters: object) -> Any:
        """Send a command of the DevTools protocol."""
        return self._call("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def log(self, kind: str) -> list[str]:
        """Return and empty a log: "browser" (the console) or "performance"."""
        return [entry["message"] for entry in self._call("POST", "/se/log", {"type": kind})]

    def requested(self) -> list[str]:
        """Return the addresses that were asked for since the page was opened."""
        events = [json.loads(message)["message"] for message in self.log("performance")]
        return [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]

    def screenshot(self, *, height: int | None = None) -> bytes:
        """Return the whole page, or its upper part, as PNG."""
        width, full = self.run("const e = document.documentElement; return [e.clientWidth, e.scrollHeight]")
        clip = {"x": 0, "y": 0, "width": width, "height": min(full, height or full), "scale": 1}
        return base64.b64decode(self.cdp("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)["data"])

    def close(self) -> None:
        """End the browser."""
        self._call("DELETE", "", None)

    def _call(self, method: str, path: str, body: object) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._base + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            with error:
                raise RuntimeError(json.load(error)["value"]["message"]) from None


@contextmanager
def browser() -> Iterator[Browser]:
    """Start chromedriver and a browser with a fresh profile."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        driver = subprocess.Popen(
            ["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        try:
            said = iter(driver.stdout.readline, "")
            port = next(match[1] for line in said if (match := re.search(r"started successfully on port (\d+)", line)))
            tab = Browser(f"http://127.0.0.1:{port}", profile)
            try:
                yield tab
            finally:
                tab.close()
        finally:
            driver.terminate()
            driver.communicate()
