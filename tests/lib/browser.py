"""Debian's headless Chromium, driven by its DevTools protocol: a page is opened, clicked and typed at as by a person, and what its scripts get wrong is told."""

import json
import re
import time
import urllib.request

import websocket

from . import apps
from .harness import check, end, spawn, tail, wait_until

PAGE_SECONDS = 60
# Nothing outside of this machine is asked for anything.
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-port=0", "--no-first-run", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--remote-allow-origins=*", "--window-size=1400,1000",
]  # fmt: skip

# The middle of the first element that is seen, and that nothing else covers there.
PLACE = """(() => {{ for (const e of document.querySelectorAll({selector})) {{ e.scrollIntoView({{block: 'center'}}); const r = e.getBoundingClientRect();
  const [x, y] = [r.x + r.width / 2, r.y + r.height / 2]; if (r.width && e.contains(document.elementFromPoint(x, y))) return [x, y]; }} return null; }})()"""


class Browser:
    """Entered in a `with`; one page."""

    def __init__(self, directory):
        self.directory = directory
        self.folder = apps.unpacked("chromium", "chromium-headless-shell")
        self.count = 0
        # What scripts threw or wrote as errors, and what could not be loaded.
        self.wrong = []

    def __enter__(self):
        log = self.directory / "chromium.log"
        command = [self.folder / "usr/lib/chromium/chromium-headless-shell", *FLAGS, f"--user-data-dir={self.directory / 'chromium'}", "about:blank"]
        with open(log, "wb") as out:
            self.process = spawn(command, stdout=out, stderr=out, env={**apps.environment(self.folder), "HOME": str(self.directory)}, start_new_session=True)
        try:
            port = wait_until(lambda: self.port(log), 30, "Chromium listens")
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list", timeout=10) as answer:
                page = next(target for target in json.load(answer) if target["type"] == "page")
            self.socket = websocket.create_connection(page["webSocketDebuggerUrl"], timeout=PAGE_SECONDS)
            for domain in ("Page", "Runtime", "Log", "Network"):
                self.call(f"{domain}.enable")
        except BaseException:
            end(self.process)
            raise
        return self

    def port(self, log):
        said = log.read_text(errors="replace")
        check(self.process.poll() is None, f"Chromium ended:\n{tail(said)}")
        found = re.search(r"DevTools listening on ws://127\.0\.0\.1:(\d+)/", said)
        return found and found[1]

    def __exit__(self, *_):
        self.socket.close()
        end(self.process)
        wait_until(lambda: not apps.has_members(self.process.pid), 10, "Chromium's processes end")

    def send(self, method, **parameters):
        self.count += 1
        self.socket.send(json.dumps({"id": self.count, "method": method, "params": parameters}))
        return self.count

    def call(self, method, **parameters):
        number = self.send(method, **parameters)
        while True:
            said = json.loads(self.socket.recv())
            if said.get("id") == number:
                check("error" not in said, f"{method}: {said.get('error')}")
                return said["result"]
            self.note(said)

    def note(self, event):
        what, about = event.get("method"), event.get("params", {})
        if what == "Runtime.exceptionThrown":
            details = about["exceptionDetails"]
            self.wrong.append(f"{details.get('text')} {details.get('exception', {}).get('description', '')} at {details.get('url')}:{details.get('lineNumber')}")
        elif what == "Log.entryAdded" and about["entry"]["level"] == "error":
            self.wrong.append(f"{about['entry']['text']} {about['entry'].get('url', '')}")
        elif what == "Network.loadingFailed" and not about.get("canceled"):
            self.wrong.append(f"{about.get('type')} {about.get('errorText')} {about.get('blockedReason', '')}")
        elif what == "Network.responseReceived" and about["response"]["status"] >= 400:
            self.wrong.append(f"{about['response']['status']} {about['response']['url']}")
        elif what == "Page.javascriptDialogOpening":
            self.send("Page.handleJavaScriptDialog", accept=True)

    def js(self, expression):
        """The value of an expression in the page."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True, userGesture=True)
        details = result.get("exceptionDetails")
        check(details is None, f"{expression}: {details}")
        return result["result"].get("value")

    def until(self, expression, what):
        """Waits until an expression is true in the page, also while another one is loaded, and returns its value."""
        deadline = time.monotonic() + PAGE_SECONDS
        while time.monotonic() < deadline:
            result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
            if result["result"].get("value") and "exceptionDetails" not in result:
                return result["result"]["value"]
            time.sleep(0.05)
        check(False, f"not within {PAGE_SECONDS} s: {what}; {self.wrong[:5]}; the page says {self.text()[-1500:]}")

    def open(self, url):
        self.call("Page.navigate", url=url)
        self.until("document.readyState === 'complete'", f"{url} is loaded")

    def text(self):
        return self.js("document.body ? document.body.innerText : ''")

    def click(self, selector, clicks=1):
        """With the mouse, where it is seen, once it stands still: scripts move what is below of what they add."""
        places = [None]

        def stands():
            places.append(self.js(PLACE.format(selector=json.dumps(selector))))
            return places[-1] and places[-1] == places[-2]

        wait_until(stands, PAGE_SECONDS, f"{selector} is seen")
        self.mouse(*places[-1], clicks)

    def mouse(self, x, y, clicks):
        for count in range(1, clicks + 1):
            for kind in ("mousePressed", "mouseReleased"):
                self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=count)

    def write(self, text):
        """Where the cursor is."""
        self.call("Input.insertText", text=text)

    def key(self, name, code, modifiers=0):
        for kind in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=name, code=name, windowsVirtualKeyCode=code, modifiers=modifiers)
