"""phpMyAdmin as Debian ships it, on PHP's own web server: it logs in by its form, shows its pages, changes rows and tables by its forms, exports and imports, while data nodes are killed.

It asks a server for more than any application does: grant tables, locales, status, collations, engines, routines, replication. No page may show an error of the server.
"""

import hashlib
import html
import http.cookiejar
import json
import re
import shutil
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

from lib import apps
from lib.browser import Browser
from lib.cluster import Cluster
from lib.harness import FULL, Failure, check, check_equal, scenario_main, wait_until
from lib.mariadb import batch

LIMIT_SECONDS = (240, 600)
SIDE_BY_SIDE = True
# Named, so that they are there where the machine has them, too.
SCRIPTS = ["libjs-codemirror", "libjs-jquery", "libjs-jquery-mousewheel", "libjs-jquery-tablesorter", "libjs-jquery-timepicker", "libjs-jquery-ui"]
PACKAGES = ["phpmyadmin", *SCRIPTS, "php-cli", "php-mysql", "php-xml", "php-mbstring"]
EXTENSIONS = ["ctype", "fileinfo", "mysqlnd", "mysqli", "dom", "iconv", "mbstring", "simplexml", "tokenizer", "xml", "xmlreader", "xmlwriter"]
# For so long rows are written and read after the last node is back.
SECONDS = 20 if FULL else 3
USER, PASSWORD = "operator", "a long pass phrase"
STORAGE = [
    "bookmark", "relation", "table_info", "table_coords", "pdf_pages", "column_info", "history", "table_uiprefs", "tracking", "userconfig", "recent", "favorite", "users",
    "usergroups", "navigationhiding", "savedsearches", "central_columns", "designer_settings", "export_templates",
]  # fmt: skip
SHOP = """
CREATE TABLE authors (id INT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, name VARCHAR(100) NOT NULL, born DATE NULL, UNIQUE KEY name (name)) COMMENT='who writes';
CREATE TABLE books (id INT NOT NULL AUTO_INCREMENT, author_id INT UNSIGNED NULL, title VARCHAR(200) NOT NULL, price DECIMAL(8,2) DEFAULT '1.50', kind ENUM('a','b') DEFAULT 'a',
  flags SET('x','y'), cover BLOB, body TEXT, extra JSON, changed TIMESTAMP DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP, PRIMARY KEY (id), KEY title (title),
  CONSTRAINT of_author FOREIGN KEY (author_id) REFERENCES authors (id) ON DELETE CASCADE);
INSERT INTO authors (name, born) VALUES ('Ada', '1815-12-10'), ('Bob', NULL);
INSERT INTO books (author_id, title, price, body, extra, cover) VALUES (1, 'One', 2.5, 'text', '{"a": 1}', x'00ff'), (2, 'Two', NULL, NULL, NULL, NULL), (1, 'Three', 7, 'long', '[1]', NULL);
CREATE VIEW dear AS SELECT * FROM books WHERE price > 2
"""
SERVER_PAGES = [
    "/", "/server/databases", "/server/sql", "/server/status", "/server/status/processes", "/server/status/queries", "/server/status/variables", "/server/status/monitor",
    "/server/variables", "/server/collations", "/server/engines", "/server/engines/InnoDB", "/server/plugins", "/server/privileges", "/server/binlog", "/server/replication",
    "/server/export", "/server/import", "/server/user-groups", "/preferences/manage", "/themes", "/navigation", "/check-relations",
]  # fmt: skip
DATABASE_PAGES = [
    "/database/structure", "/database/sql", "/database/search", "/database/multi-table-query", "/database/export", "/database/import", "/database/operations", "/database/routines",
    "/database/events", "/database/triggers", "/database/tracking", "/database/designer", "/database/central-columns", "/database/data-dictionary", "/database/qbe",
    "/database/structure/real-row-count&real_row_count_all=1",
]  # fmt: skip
TABLE_PAGES = [
    "/sql&pos=0", "/table/structure", "/table/sql", "/table/search", "/table/zoom-search", "/table/find-replace", "/table/change", "/table/export", "/table/import", "/table/operations",
    "/table/triggers", "/table/tracking", "/table/relation", "/table/indexes",
]  # fmt: skip
# What a page says of an error, whether it is the server's or its own.
WRONG = re.compile(r'<div class="alert alert-danger|MySQL said|#\d{4} - |TypeError|Not enough privilege|No [Pp]rivileges(?!\.\")|Fatal error|<b>Warning</b>')


def put_up(folder, home, sql):
    """phpMyAdmin's files, with a configuration."""
    site, (host, port) = home / "site", sql
    shutil.copytree(folder / "usr/share/phpmyadmin", site, ignore=shutil.ignore_patterns("doc"))
    for name in ("tmp", "sessions"):
        (home / name).mkdir()
    places = site / "libraries" / "vendor_config.php"
    text = places.read_text().replace("/var/lib/phpmyadmin/tmp/", f"{home}/tmp/").replace("/etc/phpmyadmin/config.inc.php", f"{home}/config.inc.php")
    places.write_text(text)
    server = {
        "host": host, "port": str(port), "auth_type": "cookie", "controluser": USER, "controlpass": PASSWORD, "pmadb": "phpmyadmin",
        **{"bookmarktable" if name == "bookmark" else name: f"pma__{name}" for name in STORAGE},
    }  # fmt: skip
    lines = [f"$cfg['Servers'][1]['{key}'] = '{value}';" for key, value in server.items()]
    lines += ["$cfg['blowfish_secret'] = '0123456789abcdef0123456789abcdef';", "$cfg['SendErrorReports'] = 'never';"]
    (home / "config.inc.php").write_text("<?php\n" + "\n".join(lines) + "\n")
    return site


def words(text):
    text = re.sub(r"(?s)<script.*?</script>|<style.*?</style>", "", text)
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", text))).strip()


class Person:
    """Somebody at a browser."""

    def __init__(self, port):
        self.base = f"http://127.0.0.1:{port}/index.php"
        self.opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()))
        self.token = None

    def ask(self, query, fields=None):
        body = None if fields is None else urllib.parse.urlencode(fields, doseq=True).encode()
        try:
            with self.opener.open(urllib.request.Request(self.base + query, body), timeout=60) as answer:
                return answer.read().decode(errors="replace")
        except urllib.error.HTTPError as error:
            raise Failure(f"{query}: {error.code} {words(error.read().decode(errors='replace'))[-1500:]}") from error

    def log_in(self, user=USER, password=PASSWORD):
        form = self.ask("")
        hidden = dict(re.findall(r'name="(token|set_session)" value="([^"]*)"', form))
        page = self.ask("?route=/", {"pma_username": user, "pma_password": password, "server": "1", **hidden})
        check("logged_in:true" in page, f"{user} is not logged in: {words(page)[-500:]}")
        self.token = re.search(r'token:"([^"]+)"', page)[1]

    def page(self, route, /, **fields):
        """What a page shows, and its text where it is asked for as a script does; without fields it is looked at, with them sent."""
        if fields:
            said = self.ask(f"?route={route}", {**fields, "token": self.token, "ajax_request": "true"})
        else:
            said = self.ask(f"?route={route}&server=1&ajax_request=true")
        answer = json.loads(said) if said.startswith(("{", "[")) else {"success": True, "message": said}
        if isinstance(answer, list):
            return said
        text = f"{answer.get('message') or ''}{answer.get('error') or ''}"
        check(answer.get("success", True), f"{route}: {words(str(answer.get('error')))[:800]}")
        wrong = WRONG.search(text)
        check(not wrong, f"{route}: {words(text[max(0, wrong.start() - 100) if wrong else 0 :])[:800]}")
        return text

    def form(self, route, **fields):
        """A form that the browser sends as one, without a script."""
        page = self.ask(f"?route={route}", {**fields, "token": self.token})
        wrong = re.search(r"#\d{4} - |TypeError", page)
        check(not wrong, f"{route}: {words(page[max(0, wrong.start() - 500) if wrong else 0 :])[:800]}")
        return page

    def sql(self, statements, database="shop"):
        """The page where SQL is typed."""
        return self.page("/import", db=database, sql_query=statements, is_js_confirmed="0", SQL="Go", show_query="1")


def row_fields(values):
    """The fields of the form of a row."""
    fields = {}
    for name, value in values.items():
        place = f"[multi_edit][0][{hashlib.md5(name.encode()).hexdigest()}]"
        fields.update({f"fields_name{place}": name, f"fields{place}": value, f"fields_type{place}": "varchar", f"fields_prev{place}": ""})
    return fields


def forms(person, sql):
    """Rows and tables by forms, then the whole database out as a file and in again."""
    query = lambda statement: batch(statement, host=sql[0], port=sql[1])[1].split("\n", 1)[-1].strip()  # noqa: E731
    at = {"db": "shop", "table": "authors"}
    person.form("/table/replace", **at, submit_type="insert", after_insert="back", sql_query="", **row_fields({"name": "Zoë ✈", "born": "1970-02-28"}))
    check_equal(query("SELECT id, name, born FROM shop.authors WHERE id = 3"), "3\tZoë ✈\t1970-02-28", "a row by the form")
    where = "`authors`.`id` = 3"
    person.form("/table/replace", **at, submit_type="save", after_insert="back", sql_query="", **{"where_clause[0]": where}, **row_fields({"name": "Zoe"}))
    check_equal(query("SELECT name FROM shop.authors WHERE id = 3"), "Zoe", "a row that was changed by the form")
    person.page("/table/add-field", **at, orig_num_fields="1", num_fields="1", field_where="last", do_save_data="1", **{
        "field_name[0]": "email", "field_type[0]": "VARCHAR", "field_length[0]": "80", "field_default_type[0]": "NULL", "field_null[0]": "YES", "field_key[0]": "none_0",
        **{f"{kind}indexes": "[]" for kind in ("primary_", "", "unique_", "fulltext_", "spatial_")},
    })  # fmt: skip
    check("email" in person.page("/table/structure&db=shop&table=authors"), "a column that was added is not shown")
    person.sql("ALTER TABLE books ADD INDEX by_price (price); ANALYZE TABLE books; CHECK TABLE books; OPTIMIZE TABLE books")
    check("by_price" in person.page("/table/structure&db=shop&table=books"), "an index that was added is not shown")
    found = person.page("/database/search", db="shop", submit_search="Go", criteriaSearchString="Three", criteriaSearchType="1", **{"criteriaTables[]": ["books", "authors"]})
    check("1 match" in words(found), words(found)[:500])
    file = person.ask("?route=/export", {
        "token": person.token, "server": "1", "export_type": "database", "export_method": "quick", "quick_or_custom": "quick", "db": "shop", "what": "sql", "output_format": "sendit", "filename_template": "@DATABASE@", "charset": "utf-8", "compression": "none",
        "sql_structure_or_data": "structure_and_data", "sql_create_table": "1", "sql_create_view": "1", "sql_include_comments": "1", "sql_type": "INSERT", "asfile": "sendit",
        "sql_insert_syntax": "both", "sql_hex_for_binary": "1", "sql_relation": "1", "sql_auto_increment": "1", "sql_backquotes": "1", "structure_or_data_forced": "1",
        "table_select[]": ["authors", "books", "dear"], "table_structure[]": ["authors", "books", "dear"], "table_data[]": ["authors", "books"],
    })  # fmt: skip
    check("INSERT INTO `books`" in file and "CREATE TABLE `authors`" in file and "dear" in file, file[:3000])
    rows = "SELECT GROUP_CONCAT(id, ':', title, ':', IFNULL(price, '-'), ':', IFNULL(HEX(cover), '-'), ':', IFNULL(extra, '-') ORDER BY id) FROM {}.books"
    before = query(rows.format("shop"))
    person.sql("CREATE DATABASE again", "")
    person.sql(file, "again")
    check_equal(query(rows.format("again")), before, "the books of the database that was exported and imported")
    check_equal(query("SELECT COUNT(*) FROM again.dear"), "2", "rows of its view")
    person.sql("DROP DATABASE again", "")


def accounts(person, port, sql):
    """An account by its form, who then logs in."""
    said = person.page("/server/privileges", adduser_submit="1", pred_username="userdefined", username="clerk", pred_hostname="any", hostname="%", pred_password="userdefined", pma_pw="secret",
                pma_pw2="secret", authentication_plugin="caching_sha2_password", Select_priv="Y", Insert_priv="Y", grant_count="29", max_questions="0", max_updates="0", max_connections="0",
                max_user_connections="0")  # fmt: skip
    check("You have added a new user" in said, words(said)[:800])
    check("clerk" in person.page("/server/privileges"), "the account is not listed")
    shown = person.page("/server/privileges&viewing_mode=server&username=clerk&hostname=%25")
    check("clerk" in shown, words(shown)[:500])
    clerk = Person(port)
    clerk.log_in("clerk", "secret")
    check("Three" in clerk.page("/sql&pos=0&db=shop&table=books"), "the clerk sees no books")
    _, granted = batch("SHOW GRANTS FOR clerk", host=sql[0], port=sql[1])
    check("GRANT SELECT, INSERT ON *.* TO `clerk`@`%`" in granted, granted)
    code, _ = batch("DROP USER clerk", host=sql[0], port=sql[1])
    check_equal(code, 0, "the account is dropped")


LINK = "a.hover_show_full[href*='db=shop']"
ROWS_SHOWN = "[...document.querySelectorAll('table.table_results tbody tr')].map(row => row.innerText)"


def follow(page, selector):
    """Clicks on a link or a button of the frame; phpMyAdmin ignores these while it is loading a page."""
    page.until("window.AJAX && !AJAX.active && document.readyState === 'complete'", "a page is loaded")
    page.click(selector)


def in_browser(t, port, sql):
    """Pages as their scripts make them: logged in, clicked through the tree, a cell changed where it stands, rows sorted, a statement typed, a row deleted."""
    query = lambda statement: batch(statement, host=sql[0], port=sql[1])[1].split("\n", 1)[-1].strip()  # noqa: E731
    with Browser(t.directory) as page:
        page.open(f"http://127.0.0.1:{port}/index.php")
        for field, text in (("#input_username", USER), ("#input_password", PASSWORD)):
            page.click(field)
            page.write(text)
        page.click("#input_go")
        follow(page, LINK)
        page.until("document.querySelector('#tablesForm') && document.body.innerText.includes('authors')", "the tables of the database")
        follow(page, "#tablesForm a[href*='route=/sql'][href*='table=authors']")
        page.until(f"({ROWS_SHOWN}).some(row => row.includes('Ada'))", "the authors")
        cell = "table.table_results tbody tr:first-child td.data[data-type='string']"
        page.until("document.querySelector('.cEdit')", "the script of the table has run")
        page.click(cell, clicks=2)
        page.until("document.activeElement.matches('textarea.edit_box')", "the cell can be changed")
        page.js("document.activeElement.select()")
        page.write("Ada Lovelace")
        page.key("Enter", 13)
        page.until(f"({ROWS_SHOWN})[0].includes('Ada Lovelace') && !document.querySelector('.edit_box_posting')", "the cell is changed")
        wait_until(lambda: query("SELECT name FROM shop.authors WHERE id = 1") == "Ada Lovelace", 20, "the row is changed")
        follow(page, "table.table_results th[data-column='name'] a.sortlink")
        page.until(f"({ROWS_SHOWN})[0].includes('Ada Lovelace') && location.href.includes('authors')", "the authors by name")
        follow(page, "#topmenu a[href*='route=/table/sql']")
        page.click("#sqlqueryform .CodeMirror")
        page.key("a", 65, modifiers=2)
        page.write("SELECT title, price * 2 AS twice FROM books WHERE price > 2 ORDER BY id")
        follow(page, "#button_submit_query")
        page.until(f"({ROWS_SHOWN}).some(row => row.includes('Three') && row.includes('14.00'))", "the rows of a statement that was typed")
        check_equal(page.wrong, [], "what the scripts of the pages said")
        check_equal(query("SELECT COUNT(*) FROM shop.books"), "3", "books")


def under_fire(t, cluster, port):
    """Somebody writes and looks while each data node is killed and comes back."""
    person, done, errors = Person(port), [], []
    person.log_in()
    person.sql("CREATE TABLE diary (id INT NOT NULL AUTO_INCREMENT PRIMARY KEY, text VARCHAR(100))")
    stop = threading.Event()

    def write():
        while not stop.is_set():
            text = f"page {len(done)} of this day"
            try:
                person.form("/table/replace", db="shop", table="diary", submit_type="insert", after_insert="back", sql_query="", **row_fields({"text": text}))
                check(text in person.page("/sql&pos=0&db=shop&table=diary&session_max_rows=all"), f"{text!r} is not shown")
                person.page("/database/structure&db=shop")
            except (Failure, OSError, ValueError) as error:
                errors.append(repr(error))
                return
            done.append(text)

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    for _ in cluster.kill_each():
        before, until = len(done), time.monotonic() + 60
        while len(done) <= before and not errors:
            check(time.monotonic() < until, "no row is written any more")
            time.sleep(0.05)
    time.sleep(SECONDS)
    stop.set()
    writer.join(120)
    check_equal(errors, [], "what the person met")
    code, text = batch("SELECT text FROM shop.diary", host=cluster.sql[0], port=cluster.sql[1])
    check(code == 0, text)
    check_equal(sorted(set(done) - set(text.split("\n"))), [], "rows that are lost")
    t.say(f"{len(done)} rows written and looked at, no error")


def main(t):
    folder = apps.unpacked("phpmyadmin", *PACKAGES)
    with Cluster(t) as cluster:
        sql = cluster.sql
        code, text = batch(f"CREATE USER {USER} IDENTIFIED BY '{PASSWORD}'; GRANT ALL ON *.* TO {USER} WITH GRANT OPTION", host=sql[0], port=sql[1])
        check(code == 0, text)
        site = put_up(folder, t.directory, sql)
        settings = [f"include_path=.:{folder}/usr/share/php", f"session.save_path={t.directory}/sessions", "memory_limit=256M", "display_errors=1"]
        with apps.php_server(folder, t.directory, site, EXTENSIONS, *settings) as port:
            person = Person(port)
            with t.case("somebody logs in by its form, and it makes its own tables"):
                person.log_in()
                person.page("/check-relations", create_pmadb="1")
                said = words(person.page("/check-relations"))
                check("General relation features: Enabled" in said and "not OK" not in said, said[:1000])
            with t.case("its pages of the server, a database, tables and a view show no error"):
                person.sql("CREATE DATABASE shop COLLATE utf8mb4_unicode_ci", "")
                person.sql(SHOP)
                for page in SERVER_PAGES:
                    person.page(page)
                for page in DATABASE_PAGES:
                    person.page(f"{page}&db=shop")
                for page in TABLE_PAGES:
                    for table in ("authors", "books", "dear"):
                        person.page(f"{page}&db=shop&table={table}")
            with t.case("rows, a column and an index by its forms; a database out and in again"):
                forms(person, sql)
            with t.case("somebody at Chromium logs in, clicks, changes a cell where it stands, types a statement"):
                in_browser(t, port, sql)
            with t.case("an account by its form, who logs in"):
                accounts(person, port, sql)
            with t.case("somebody writes on while each data node is killed and joins again"):
                under_fire(t, cluster, port)


if __name__ == "__main__":
    scenario_main(main)
