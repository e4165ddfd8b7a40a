"""A console, as its user types at it, on a terminal of its own: `shop.py KIND COMMAND... PORT DATABASE STEP`. KIND is `mysql`, `mariadb`, `mycli` or `usql`."""

import json
import os
import pathlib
import re
import select
import signal
import sys
import tempfile
import time

import pexpect
import pymysql
from pexpect.popen_spawn import PopenSpawn

HERE = pathlib.Path(__file__).resolve().parent
PROMPT = "apus> "
ANSWER_SECONDS = 30
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]|\r")
NUMBER = re.compile(r"\b\d{4}\b")
# A deadlock: the transaction is rolled back, and typed again.
DEADLOCK = 1213


class Wrong(Exception):
    pass


def same(found, wanted, what):
    if found != wanted:
        raise Wrong(f"{what}: {found!r}, not {wanted!r}")


def cells(text):
    """Of the lines of a table as it is drawn; what `usql` draws has no lines beside a single column."""
    lines = [line.strip() for line in text.splitlines()]
    drawn = [line for line in lines if "|" in line] or [line for line in lines if line and not re.fullmatch(r"-+|\(\d+ rows?\)", line)]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in drawn]


class Console:
    """What differs between consoles: how they are started, and how they name what all of them do."""

    source = "source {}"
    status = "status"
    tables = "SHOW TABLES;"
    has_vertical = True
    has_interrupt = True
    is_strict = True

    def __init__(self, command, port, database):
        self.command, self.port, self.database = command, port, database

    def arguments(self):
        return [f"--prompt={PROMPT}", "-h127.0.0.1", f"-P{self.port}", "-uroot", self.database]

    def __enter__(self):
        self.home = tempfile.TemporaryDirectory(prefix="apus-console-")
        environment = {**os.environ, "TERM": "dumb", "HOME": self.home.name, "PAGER": "cat", "NO_COLOR": "1"}
        self.terminal = self.start([*self.command, *self.arguments()], environment)
        self.prepare()
        return self

    def start(self, command, environment):
        first, *rest = command
        return pexpect.spawn(first, rest, env=environment, encoding="utf-8", dimensions=(500, 1000), timeout=ANSWER_SECONDS, echo=False)

    def __exit__(self, *_):
        self.terminal.kill(signal.SIGKILL)
        self.terminal.wait()
        self.home.cleanup()

    def prepare(self):
        self.answer()

    def answer(self):
        """What it says until it waits for the next line. Some print their prompt without its last blank."""
        if self.terminal.expect_exact([PROMPT.strip(), pexpect.EOF, pexpect.TIMEOUT]):
            raise Wrong(f"{self.command[0]} does not come back: {ESCAPES.sub('', self.terminal.before)[-2000:]}")
        return ESCAPES.sub("", self.terminal.before)

    def ask(self, *lines):
        for line in lines[:-1]:
            self.terminal.sendline(line)
        self.terminal.sendline(lines[-1])
        text = self.answer()
        for line in lines:
            text = text.replace(line, "", 1)
        return text

    def rows(self, *lines):
        """The cells of a table that it draws, without headings."""
        found = cells(self.ask(*lines))
        if len(found) < 2:
            raise Wrong(f"{lines}: no rows")
        return found[1:]

    def refused(self, *lines):
        """MySQL's number of the error that it shows."""
        text = self.ask(*lines)
        found = NUMBER.search(text)
        if not found:
            raise Wrong(f"{lines}: no error in {text!r}")
        return int(found[0])

    def interrupt(self, line):
        """Types it, and Control-C when the server is at it, which then ends it."""
        self.terminal.sendline(line)
        self.wait_for(line, True)
        self.terminal.sendintr()
        self.answer()
        self.wait_for(line, False)

    def wait_for(self, line, runs):
        """Until the server is at this statement, or is not any more."""
        until = time.monotonic() + ANSWER_SECONDS
        with pymysql.connect(host="127.0.0.1", port=int(self.port), user="root") as other, other.cursor() as cursor:
            while cursor.execute("SELECT id FROM information_schema.processlist WHERE info LIKE %s", line.rstrip(";") + "%") != int(runs):
                if time.monotonic() > until:
                    raise Wrong(f"{line} {'does not begin' if runs else 'goes on'}")
                time.sleep(0.05)


class Mysql(Console):
    pass


class Mariadb(Console):
    pass


class Mycli(Console):
    """Its menus and colours are off: the terminal is a dumb one."""

    def arguments(self):
        settings = HERE / "myclirc"
        return [f"--prompt={PROMPT}", f"--myclirc={settings}", "--no-warn", "-h127.0.0.1", f"-P{self.port}", "-uroot", "-D", self.database]


class Usql(Console):
    """It draws its prompt anew with every key, so it reads from a pipe, and says itself where an answer ends. Its sessions have `sql_mode=ansi`."""

    source = r"\i {}"
    status = r"\conninfo"
    tables = r"\dt"
    has_vertical = False
    # An interrupt ends it where it reads from a pipe.
    has_interrupt = False
    is_strict = False

    def arguments(self):
        return ["--no-init", f"mysql://root@127.0.0.1:{self.port}/{self.database}"]

    def start(self, command, environment):
        return PopenSpawn(command, env=environment, encoding="utf-8", timeout=ANSWER_SECONDS)

    def prepare(self):
        pass

    def ask(self, *lines):
        return super().ask(*lines, rf"\echo {PROMPT}")


def migrate(console):
    console.ask(console.source.format(HERE / "schema.sql"))
    listed = console.ask(console.tables)
    if "books" not in listed or "events" not in listed:
        raise Wrong(f"{console.tables}: {listed!r}")


def work(console):
    status = console.ask(console.status)
    if not re.search(r"mysql|Apus", status, re.I):
        raise Wrong(f"{console.status}: {status!r}")
    console.ask("INSERT INTO books (title, price, kind)", "VALUES ('Ærøskøbing it''s', 12.50,", "'sound');")
    console.ask(console.source.format(HERE / "rows.sql"))
    same(console.rows("SELECT title, price, kind FROM books", "WHERE id = 1;")[:1], [["Ærøskøbing it's", "12.50", "sound"]], "a row typed in three lines")
    page = console.rows("SELECT title, price FROM books WHERE price BETWEEN 3 AND 7 AND title LIKE 'Book %' ORDER BY price DESC, id LIMIT 10 OFFSET 20;")
    same(page[:10:9], [["Book 106", "6.00"], ["Book 286", "6.00"]], "a page")
    same(console.rows("SELECT kind, COUNT(*) AS n, SUM(price) AS total FROM books GROUP BY kind ORDER BY kind;")[:2],
         [["paper", "300", "2850.00"], ["sound", "1", "12.50"]], "totals")
    if console.has_vertical:
        vertical = console.ask(r"SELECT title, price FROM books WHERE title = 'Book 7'\G")
        if not re.search(r"title\s*[:|]\s*Book 7\n", vertical) or not re.search(r"price\s*[:|]\s*7\.00", vertical):
            raise Wrong(f"one below the other: {vertical!r}")
    for statement, number in (
        ("SELEKT 1;", 1064),
        ("SELECT * FROM nowhere;", 1146),
        ("INSERT INTO books (title) VALUES ('Book 1');", 1062),
        ("INSERT INTO events (number, book_id) VALUES (1, 999999);", 1452),
        ("UPDATE books SET stock = -1 WHERE id = 1;", 3819),
        (f"INSERT INTO books (title) VALUES ('{'x' * 300}');", 1406),
    ):
        if number != 1406 or console.is_strict:
            same(console.refused(statement), number, statement)
    console.ask("BEGIN;")
    console.ask("UPDATE books SET note = 'goes';")
    console.ask("SAVEPOINT s;")
    console.ask("DELETE FROM books;")
    console.ask("ROLLBACK TO SAVEPOINT s;")
    same(console.rows("SELECT COUNT(*) AS n FROM books WHERE note = 'goes';")[0], ["301"], "inside the transaction")
    console.ask("ROLLBACK;")
    same(console.rows("SELECT COUNT(*) AS n FROM books WHERE note = 'goes';")[0], ["0"], "after the rollback")
    if console.has_interrupt:
        console.interrupt("SELECT SLEEP(60);")
    same(console.rows("SELECT 6 * 7 AS n;")[0], ["42"], "after Control-C")
    identity = console.rows("SELECT CONNECTION_ID() AS n;")[0][0]
    console.ask(f"KILL {identity};")
    same(after_loss(console, "SELECT COUNT(*) AS n FROM events;"), ["0"], "on the connection after the one that was killed")


def after_loss(console, statement):
    """Consoles notice that a connection is gone when they use it, say so, and connect again, some at once and some for the next statement."""
    for _ in range(3):
        text = console.ask(statement)
        if "|" in text or "(1 row)" in text:
            return cells(text)[-1]
        if "Reconnect" in text or console.terminal.before.rstrip().endswith("[Y/n]:"):
            console.ask("y")
    raise Wrong(f"no connection any more: {text!r}")


def load(console):
    """Transactions as typed, until a line comes in."""
    print("writes", flush=True)
    numbers, retried = 0, 0
    while not select.select([sys.stdin], [], [], 0)[0]:
        lines = ("BEGIN;", f"UPDATE books SET stock = stock + 1 WHERE id = {numbers % 5 + 1};", f"INSERT INTO events (number, book_id) VALUES ({numbers}, {numbers % 5 + 1});", "COMMIT;")
        for line in lines:
            found = re.search(r"ERROR|\bError\b|error:|\(\d{4}, ", text := console.ask(line))
            if found and str(DEADLOCK) in text:
                retried += 1
                break
            if found:
                raise Wrong(f"{line}: {text}")
        else:
            numbers += 1
    print(json.dumps({"numbers": numbers, "retried": retried}), flush=True)


def main():
    kind, *command, port, database, step = sys.argv[1:]
    consoles = {"mysql": Mysql, "mariadb": Mariadb, "mycli": Mycli, "usql": Usql}
    steps = {"migrate": migrate, "work": work, "load": load}
    with consoles[kind](command, port, database) as console:
        try:
            steps[step](console)
        except Wrong as wrong:
            sys.exit(f"{kind} {step}: {wrong}")


if __name__ == "__main__":
    main()
