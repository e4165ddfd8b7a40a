"""`apus bench probe --control`, driven line by line."""

import json
import subprocess
import time

from lib.harness import BINARY, Failure, check, die_with_parent, end


class Probe:
    """Writes through all SQL nodes of a rig to all node groups until it is asked for its audit."""

    def __init__(self, rig, rate=1000):
        sql = ",".join(n.address for n in rig.sql)
        command = [BINARY, "bench", "probe", "--control", f"--mgmt={rig.mgmt_addresses}", f"--sql={sql}", f"--rate={rate}"]
        command += [f"--client-secret={rig.secrets['client']}", f"--root-password-file={rig.password_file}"]
        self.log = open(rig.directory / "probe.log", "wb")
        self.process = subprocess.Popen(
            [str(c) for c in command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            preexec_fn=die_with_parent,
        )

    def __enter__(self):
        try:
            self.answer()
        except BaseException:
            self.__exit__()
            raise
        return self

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            self.process.wait(10)
            text = open(self.log.name, errors="replace").read()
            raise Failure(f"the probe ended with {self.process.returncode}: {text[-2000:]}")
        answer = json.loads(line)
        check("error" not in answer, f"the probe: {answer}")
        return answer

    def tell(self, command):
        """The answer is to be taken later."""
        try:
            self.process.stdin.write(command.encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # its end is told by the missing answer

    def ask(self, command):
        self.tell(command)
        return self.answer()

    def window(self, name, seconds, strike=None, lead=0.2):
        """A window of so many seconds with a fault in it, `lead` seconds after its beginning."""
        self.open_window(name, seconds, strike, lead)
        return self.ask("end")

    def open_window(self, name, seconds, strike=None, lead=0.2):
        """The window lasts until the probe is told its end."""
        self.ask(f"begin {name}")
        time.sleep(lead)
        if strike is not None:
            now = time.monotonic_ns()
            strike()
            self.ask(f"fault {now}")
        time.sleep(seconds - lead)

    def audit(self):
        found = self.ask("audit")
        self.process.stdin.close()
        self.process.wait(30)
        return found

    def __exit__(self, *_):
        end(self.process)
        self.process.stdin.close()
        self.process.stdout.close()
        self.log.close()
