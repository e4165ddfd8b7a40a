"""Consoles, as people type at them: MySQL's own `mysql`, `mariadb`, `mycli` and `usql`. Each works on a terminal, and writes while data nodes are killed.

MySQL's other programs (`mysqladmin`, `mysqlshow`, `mysqlcheck`, `mysqldump`, `mysqlimport`, `mysqlslap`) say of Apus what they say of a MySQL server of the same version that holds
the same rows. Where Debian's unstable has gone on to other versions, what comes from there is not run.
"""

import difflib
import re

from lib import mysql
from lib.clients import HERE, Program, run_programs
from lib.cluster import Cluster
from lib.harness import CLIENTS, check, check_equal, run, scenario_main

LIMIT_SECONDS = (300, 300)
SIDE_BY_SIDE = True
PYTHON = CLIENTS / "venv/bin/python"
USQL = CLIENTS / "apps/usql"
TABLES = """
CREATE TABLE goods (id INT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, name VARCHAR(40) NOT NULL, price DECIMAL(10,2), weight DOUBLE, kind ENUM('a','b') DEFAULT 'a', tags SET('x','y'), raw VARBINARY(8),
  bits BIT(9), doc JSON, made DATETIME(3), day DATE, hour TIME, born YEAR, body TEXT, UNIQUE KEY name (name), KEY price (price, kind)) COMMENT='what is sold';
INSERT INTO goods VALUES (1, 'Ærø & <b>', 12.50, 1.5e10, 'b', 'x,y', x'00ff27', b'101', '{"k": [1, null]}', '2024-02-29 23:59:58.125', '2024-02-29', '-12:30:00', 1999, 'two\nlines\tand a tab'),
  (2, 'nothing', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
CREATE TABLE sales (id INT NOT NULL AUTO_INCREMENT PRIMARY KEY, good INT UNSIGNED NOT NULL, amount INT NOT NULL CHECK (amount > 0), twice INT AS (amount * 2), CONSTRAINT of_good FOREIGN KEY (good) REFERENCES goods (id) ON DELETE CASCADE);
INSERT INTO sales (good, amount) VALUES (1, 3), (2, 4), (1, 5);
CREATE VIEW dear AS SELECT id, name FROM goods WHERE price > 10;
"""
ROWS = "SELECT * FROM goods ORDER BY id; SELECT name, SUM(amount) AS total FROM goods JOIN sales ON good = goods.id GROUP BY name WITH ROLLUP; SELECT 1/0, 'x' + 1; UPDATE goods SET price = price + 0 WHERE id = 1"
# Options of `mysql`, with each of which it shows these rows as it does those of a MySQL server.
SHAPES = [
    [], ["--table"], ["--batch", "--raw"], ["--skip-column-names", "--silent"], ["--vertical"], ["--xml"], ["--html"], ["--column-type-info"], ["--binary-as-hex", "--table"],
    ["--show-warnings", "--table"], ["--comments"], ["--compress", "--quick"], ["--ssl-mode=REQUIRED"], ["--ssl-mode=DISABLED"], ["--default-character-set=utf8mb4", "--table", "-vvv"],
    ["--compression-algorithms=zstd", "--unbuffered"], ["--init-command=SET @x = 1", "--safe-updates"], ["--force", "--execute=SELECT nope; SELECT 2"],
    ["--execute=SET long_query_time = 0.1; SELECT SLEEP(0.3); SHOW STATUS LIKE 'Slow_queries'"], ["--telemetry-client=OFF", "--line-numbers"],
]  # fmt: skip
# A MySQL server keeps a log of global transactions.
DUMP = ["--skip-dump-date", "--set-gtid-purged=OFF"]
# Programs whose words are the same, but for what the expressions below make equal.
WORDS = [
    ("mysqlshow", "--count", "shop"), ("mysqlshow", "shop"), ("mysqlshow", "--show-table-type", "shop"), ("mysqlcheck", "--databases", "shop"),
    ("mysqlcheck", "--analyze", "shop", "goods"), ("mysqlshow", "--keys", "shop", "goods"), ("mysqladmin", "ping"), ("mysqladmin", "create", "other"), ("mysqladmin", "--force", "drop", "other"), ("mysqladmin", "flush-tables"), ("mysqladmin", "kill", "4000000000"),
    ("mysqldump", *DUMP, "shop"), ("mysqldump", *DUMP, "--no-data", "--databases", "shop"), ("mysqldump", *DUMP, "--hex-blob", "--complete-insert", "--skip-extended-insert", "--order-by-primary", "shop", "goods"),
    ("mysqldump", *DUMP, "--xml", "--no-create-info", "shop", "sales"), ("mysqldump", *DUMP, "--single-transaction", "--where=id = 1", "shop", "goods"),
]  # fmt: skip
UNLIKE = [(r"Server version\t.*", "Server version"), (r"\(\d+\.\d+ sec\)", "(0 sec)"), (r"DEFINER=`root`@`(%|localhost)`", "DEFINER=root"), (r"\| A {9}\| \d+ {11}\|", "| A         | some        |")]


def address(port):
    return ["--host=127.0.0.1", f"--port={port}", "--user=root", "--protocol=TCP"]


def told(port, name, *arguments, stdin=None, ok=False):
    code, text = run([*mysql.program(f"bin/{name}"), "--no-defaults", *address(port), *map(str, arguments)], seconds=60, stdin=stdin, ok=False)
    check(not ok or code == 0, f"{name} {arguments}: {code}: {text}")
    for pattern, instead in UNLIKE:
        text = re.sub(pattern, instead, text)
    return code, text


def same_words(ports, name, *arguments, stdin=None):
    of_apus, of_mysql = (told(port, name, *arguments, stdin=stdin) for port in ports)
    if of_apus != of_mysql:
        difference = difflib.unified_diff(of_mysql[1].splitlines(), of_apus[1].splitlines(), "MySQL", "Apus", lineterm="", n=0)
        check(False, f"{name} {' '.join(arguments)}: {of_mysql[0]} and {of_apus[0]}:\n" + "\n".join(difference))


def programs_of_mysql(t, cluster):
    with mysql.MySql(t.directory / "mysql", tcp=True, options=["--local-infile=ON", "--transaction-isolation=READ-COMMITTED"]) as reference:
        ports = (cluster.sql[1], reference.port)
        for port in ports:
            # Whom the views of the other one are defined by.
            for definer in ("root@localhost", "root@'%'"):
                told(port, "mysql", f"--execute=CREATE USER IF NOT EXISTS {definer}; GRANT ALL ON *.* TO {definer} WITH GRANT OPTION; CREATE DATABASE IF NOT EXISTS shop", ok=True)
            told(port, "mysql", "shop", stdin=TABLES, ok=True)
        for shape in SHAPES:
            with t.case(f"mysql {' '.join(shape)}"):
                same_words(ports, "mysql", *shape, "shop", stdin=ROWS)
        for name, *arguments in WORDS:
            with t.case(f"{name} {' '.join(arguments)}"):
                same_words(ports, name, *arguments)
        with t.case("mysqldump of either is loaded into the other"):
            exchange(ports)
        with t.case("mysqlimport reads a file of this machine"):
            imports(t, ports[0])
        with t.case("mysqladmin tells of status, variables and sessions"):
            _, text = told(ports[0], "mysqladmin", "status", "extended-status", "variables", "processlist", "version", ok=True)
            check(re.search(r"Uptime: \d+  Threads: \d+  Questions: \d+  Slow queries: \d+  Opens: \d+  Flush tables: \d+  Open tables: \d+", text), text[:500])
            check("Slow_queries" in text and "long_query_time" in text and "Protocol version" in text, text)
        with t.case("mysqlslap"):
            _, text = told(ports[0], "mysqlslap", "--auto-generate-sql", "--concurrency=4", "--number-of-queries=400", "--auto-generate-sql-load-type=mixed", "--auto-generate-sql-add-autoincrement", ok=True)
            check("Average number of seconds to run all queries" in text and "ERROR" not in text.upper(), text)


def exchange(ports):
    dump = lambda port, database: told(port, "mysqldump", *DUMP, "--hex-blob", "--order-by-primary", database, ok=True)[1]  # noqa: E731
    before = [dump(port, "shop") for port in ports]
    for port, text in zip(ports, reversed(before)):
        told(port, "mysql", "--execute=CREATE DATABASE again", ok=True)
        told(port, "mysql", "again", stdin=text, ok=True)
    for port, text in zip(ports, reversed(before)):
        check_equal(dump(port, "again").replace("again", "shop"), text, f"dumped again from {port}")
        told(port, "mysql", "--execute=DROP DATABASE again", ok=True)


def imports(t, port):
    file = t.directory / "stock.csv"
    file.write_text('1,"a, quoted ""word"""\n2,\\N\n')
    told(port, "mysql", "--execute=SET GLOBAL local_infile = ON; CREATE TABLE stock (id INT PRIMARY KEY, name VARCHAR(40))", "shop", ok=True)
    _, text = told(port, "mysqlimport", "--local", "--fields-terminated-by=,", "--fields-optionally-enclosed-by=\"", "shop", file, ok=True)
    check_equal(text.strip(), "shop.stock: Records: 2  Deleted: 0  Skipped: 0  Warnings: 0", "what it says")
    _, text = told(port, "mysql", "--skip-column-names", "--execute=SELECT * FROM stock", "shop", ok=True)
    check_equal(text, '1\ta, quoted "word"\n2\tNULL\n', "the rows")


def unstable(t, folder, *packages):
    """Whether these packages of Debian's unstable are there."""
    problem = mysql.get(folder, *packages)
    if problem:
        t.say(f"not run: {problem}")
    return not problem


def consoles(t):
    commands = {"mariadb": ["mariadb", "--no-defaults"], "mycli": [CLIENTS / "mycli/bin/mycli"]}
    if unstable(t, mysql.FOLDER):
        commands["mysql"] = [*mysql.program("bin/mysql"), "--no-defaults"]
    if unstable(t, USQL, "usql=0.19.19"):
        commands["usql"] = mysql.program("bin/usql", USQL)
    return [Program(name, [PYTHON, HERE / "consoles" / "shop.py", name, *command]) for name, command in commands.items()]


def main(t):
    with Cluster(t) as cluster:
        run_programs(t, cluster, consoles(t))
        if unstable(t, mysql.FOLDER):
            programs_of_mysql(t, cluster)


if __name__ == "__main__":
    scenario_main(main)
