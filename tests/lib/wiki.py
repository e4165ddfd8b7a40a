"""MediaWiki as Debian's unstable ships it: its files, its settings and programs, and whoever reads and writes it by its pages and its API."""

import collections
import html
import http.cookiejar
import json
import os
import re
import shutil
import urllib.error
import urllib.parse
import urllib.request
import uuid

from . import apps
from .harness import Failure, check, check_equal, run
from .mariadb import batch

PACKAGES = ["mediawiki=1:1.43", *[f"php8.4-{part}=8.4" for part in ("cli", "mysql", "mbstring", "xml", "intl", "opcache")]]
FOLDER = apps.APPS / "mediawiki"
MODULES = ["ctype", "fileinfo", "mysqlnd", "mysqli", "dom", "iconv", "mbstring", "intl", "posix", "simplexml", "tokenizer", "xml", "xmlreader", "xmlwriter"]
# Those that bring tables of their own, those that these need, and what makes pages more than text.
EXTENSIONS = ["AbuseFilter", "Cite", "DiscussionTools", "Echo", "Linter", "LoginNotify", "OATHAuth", "ParserFunctions", "ReplaceText", "VisualEditor"]
ADMIN, PASSWORD = "Keeper", "a long pass phrase of this test"

# Where the database is, and who makes the wiki's own account there.
Database = collections.namedtuple("Database", "host port user password", defaults=("root", ""))


def link(source, target):
    """A file in a second place, where both are on one disk without its content."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


class Wiki:
    """Its files, its settings and its programs."""

    def __init__(self, home, database):
        self.home, self.database, self.site, self.log = home, database, home / "site", home / "errors.log"
        shipped = FOLDER / "usr/share/mediawiki"
        shutil.copytree(shipped, self.site, ignore=shutil.ignore_patterns("extensions-core"), ignore_dangling_symlinks=True, copy_function=link)
        (self.site / "images").mkdir()
        for name in EXTENSIONS:
            shutil.copytree(shipped / "extensions-core" / name, self.site / "extensions" / name, copy_function=link)
        self.settings = ["memory_limit=256M", "zend_extension=opcache"]

    def program(self, name, *arguments):
        command = [*apps.php(FOLDER, MODULES, *self.settings), self.site / "maintenance/run.php", name, *arguments]
        return run(command, seconds=120, env=apps.environment(FOLDER))[1]

    def server(self):
        return apps.php_server(FOLDER, self.home, self.site, MODULES, *self.settings)

    def sql(self, statements, name="wiki"):
        options = ["-N", f"--user={self.database.user}", f"--password={self.database.password}"]
        code, text = batch(statements, host=self.database.host, port=self.database.port, database=name, options=options)
        check(code == 0 and "ERROR" not in text, text)
        return text.strip()

    def install(self, port):
        said = self.program(
            "install", "--dbtype=mysql", f"--dbserver={self.database.host}:{self.database.port}", "--dbname=wiki", f"--installdbuser={self.database.user}",
            f"--installdbpass={self.database.password}", "--dbuser=wikiuser", "--dbpass=of the wiki", f"--server=http://127.0.0.1:{port}", "--scriptpath=", f"--pass={PASSWORD}",
            f"--confpath={self.site}", f"--extensions={','.join(EXTENSIONS)}", "Apus Wiki", ADMIN,
        )  # fmt: skip
        check("MediaWiki has been successfully installed" in said, said[-3000:])
        with open(self.site / "LocalSettings.php", "a") as file:
            file.write(f"""
$wgDBerrorLog = '{self.log}';
$wgDebugLogGroups = ['exception' => $wgDBerrorLog];
$wgShowExceptionDetails = $wgEnableUploads = true;
$wgJobRunRate = 0;
$wgRateLimits = [];
""")

    def errors(self):
        """The numbers of the errors of its database that MediaWiki has noted, and of others their text."""
        said = self.log.read_text(errors="replace") if self.log.exists() else ""
        numbers = set(re.findall(r"\bError (\d+)(?: from|:)", said))
        return numbers or ({said[:4000]} if said else set())

    def no_errors(self, but=None):
        """That MediaWiki has noted none since it was asked last."""
        noted = self.errors() - {but}
        said = self.log.read_text(errors="replace")[:4000] if noted else ""
        self.log.unlink(missing_ok=True)
        check(not noted, f"{sorted(noted)}:\n{said}")


def with_file(fields, file):
    """The body of a form with a picture, and its headers."""
    line = uuid.uuid4().hex
    parts = [f'--{line}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode() for name, value in fields.items()]
    parts += [f'--{line}\r\nContent-Disposition: form-data; name="file"; filename="f"\r\nContent-Type: image/png\r\n\r\n'.encode(), file, f"\r\n--{line}--\r\n".encode()]
    return b"".join(parts), {"Content-Type": f"multipart/form-data; boundary={line}"}


class Person:
    """Somebody at a browser, or a program of theirs."""

    def __init__(self, port):
        self.port, self.base = port, f"http://127.0.0.1:{port}"
        self.opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()))

    def ask(self, path, data=None, headers=None):
        try:
            with self.opener.open(urllib.request.Request(f"{self.base}/{path}", data, headers or {}), timeout=60) as answer:
                text = answer.read().decode(errors="replace")
        except urllib.error.HTTPError as error:
            raise Failure(f"{path}: {error.code} {error.read().decode(errors='replace')[-1500:]}") from error
        check("Database error" not in text and "Fatal exception" not in text and "Internal error" not in text, f"{path}: {text[:3000]}")
        return text

    def page(self, title, **fields):
        """The words of a page."""
        text = self.ask("index.php?" + urllib.parse.urlencode({"title": title, **fields}))
        return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", "", re.sub(r"(?s)<(script|style).*?</\1>", "", text))))

    def api(self, action, kind=None, file=None, **fields):
        """A call, which is posted with a token if it is named of which kind."""
        fields = {"action": action, "format": "json", "formatversion": "2", **fields}
        if kind:
            name = {"login": "logintoken", "createaccount": "createtoken"}.get(kind, "token")
            fields[name] = self.api("query", meta="tokens", type=kind)["query"]["tokens"][f"{kind}token"]
        if file:
            text = self.ask("api.php", *with_file(fields, file))
        else:
            sent = urllib.parse.urlencode(fields)
            text = self.ask("api.php", sent.encode()) if kind else self.ask(f"api.php?{sent}")
        said = json.loads(text)
        check("error" not in said, f"{fields}: {text[:3000]}")
        return said

    def query(self, name, **fields):
        """What a list or a property of one page is."""
        found = self.api("query", **fields)["query"]
        return found[name] if name in found else found["pages"][0].get(name, [])

    def log_in(self, name=ADMIN):
        said = self.api("clientlogin", kind="login", username=name, password=PASSWORD, loginreturnurl=self.base)["clientlogin"]
        check_equal((said["status"], said.get("username")), ("PASS", name), said)

    def edit(self, title, text=None, **fields):
        """The number of the new revision."""
        said = self.api("edit", kind="csrf", title=title, **({} if text is None else {"text": text}), **fields)["edit"]
        check_equal(said["result"], "Success", said)
        return said["newrevid"]

    def found(self, words, what="text"):
        """The titles that a search finds."""
        return sorted(page["title"] for page in self.query("search", list="search", srsearch=words, srwhat=what))
