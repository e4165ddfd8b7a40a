"""Accounts on two SQL nodes: logins of stock clients, privileges that are there or gone on the other node when the statement has returned, while a data node dies
and comes back; and all of it after a start from the disks."""

import contextlib
import threading

import mysql.connector
import pymysql

from lib.cluster import Cluster
from lib.harness import FULL, Failure, check, check_equal, run, scenario_main, wait_until

LIMIT_SECONDS = (150, 400)
SIDE_BY_SIDE = True
ROUNDS = 60 if FULL else 8
ANY_TLS = {"check_hostname": False, "verify_mode": "none"}
CLIENT = "mariadb"

SCHEMA = """
CREATE DATABASE shop;
CREATE TABLE shop.item (id INT PRIMARY KEY, name VARCHAR(20), price INT);
CREATE TABLE shop.secret (id INT PRIMARY KEY, v INT);
INSERT INTO shop.item VALUES (1, 'swift', 9), (2, 'nest', 120);
INSERT INTO shop.secret VALUES (1, 42);
CREATE VIEW shop.told AS SELECT v FROM shop.secret;
CREATE SQL SECURITY INVOKER VIEW shop.asked AS SELECT v FROM shop.secret;
CREATE DATABASE other;
CREATE TABLE other.t (id INT PRIMARY KEY);
CREATE USER app IDENTIFIED BY 'app pass';
CREATE USER 'old'@'localhost' IDENTIFIED WITH mysql_native_password BY 'old pass';
CREATE USER sure IDENTIFIED BY 'sure' REQUIRE SSL;
CREATE USER few IDENTIFIED BY 'few' WITH MAX_USER_CONNECTIONS 1;
CREATE USER closed IDENTIFIED BY 'closed' ACCOUNT LOCK;
"""


def node(cluster, number):
    found = cluster.describe()["sql"][number]
    return {"host": found["host"], "port": found["port"]}


def connect(cluster, number, user="root", password="", **options):
    if user != "root":
        options.setdefault("ssl", ANY_TLS)
    return pymysql.connect(**node(cluster, number), user=user, password=password, autocommit=True, **options)


def ask(connection, statement):
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchall()


def refused(number, what, make):
    try:
        make()
    except (pymysql.MySQLError, mysql.connector.Error) as error:
        check_equal(error.args[0], number, f"{what}: {error}")
        return str(error.args[1])
    raise Failure(f"{what} was not refused")


def stock(cluster, number, user, password, *options, ok=True, statement="SELECT CURRENT_USER()"):
    where = node(cluster, number)
    command = [CLIENT, "--no-defaults", f"-u{user}", f"-p{password}", f"-h{where['host']}", f"-P{where['port']}", "-N", *options]
    return run([*command, "-e", statement], ok=ok)


def logins(t, cluster, root):
    with t.case("an account that one SQL node has made logs in at the other at once, by all clients"):
        for statement in filter(None, (s.strip() for s in SCHEMA.split(";"))):
            ask(root, statement)
        for number in (1, 0):
            for options in ([], ["--skip-ssl"]):
                check_equal(stock(cluster, number, "app", "app pass", *options)[1].split(), ["app@%"], f"{options}")
            with contextlib.closing(connect(cluster, number, "app", "app pass")) as connection:
                check_equal(ask(connection, "SELECT USER(), CURRENT_USER()"), (("app@localhost", "app@%"),), "PyMySQL")
            with contextlib.closing(mysql.connector.connect(**node(cluster, number), user="app", password="app pass")) as connection:
                check(connection.is_connected(), "Connector/Python")
    with t.case("a password that the process remembers is proved without TLS; CHANGE_USER proves it, too"):
        with contextlib.closing(connect(cluster, 1, "app", "app pass", ssl_disabled=True)) as connection:
            check_equal(ask(connection, "SELECT CURRENT_USER()"), (("app@%",),), "short proof")
        with contextlib.closing(mysql.connector.connect(**node(cluster, 0), user="root")) as connection:
            connection.cmd_change_user("app", "app pass")
            cursor = connection.cursor()
            cursor.execute("SELECT CURRENT_USER()")
            check_equal(cursor.fetchall(), [("app@%",)], "the other user")
    with t.case("two passwords at a time: RETAIN CURRENT PASSWORD and DISCARD OLD PASSWORD, at both SQL nodes"):
        for plugin in ("caching_sha2_password", "mysql_native_password"):
            ask(root, f"CREATE USER two IDENTIFIED WITH {plugin} BY 'one'")
            ask(root, "ALTER USER two IDENTIFIED BY 'other' RETAIN CURRENT PASSWORD")
            for number in (0, 1):
                for password in ("one", "other", "one"):
                    check_equal(stock(cluster, number, "two", password)[1].split(), ["two@%"], f"{plugin}: {password}")
                refused(1045, "a third password", lambda number=number: connect(cluster, number, "two", "none"))
            with contextlib.closing(connect(cluster, 1, "two", "other")) as own:
                refused(1227, "who may not have two", lambda own=own: ask(own, "ALTER USER USER() DISCARD OLD PASSWORD"))
                ask(root, "GRANT APPLICATION_PASSWORD_ADMIN ON *.* TO two")
                ask(own, "ALTER USER USER() DISCARD OLD PASSWORD")
            refused(1045, "the password that was discarded", lambda: connect(cluster, 0, "two", "one"))
            check_equal(stock(cluster, 0, "two", "other")[1].split(), ["two@%"], plugin)
            ask(root, "DROP USER two")
    with t.case("mysql_native_password and the most specific host"):
        with contextlib.closing(connect(cluster, 0, "old", "old pass")) as connection:
            check_equal(ask(connection, "SELECT CURRENT_USER()"), (("old@localhost",),), "the host of the account")
    with t.case("a wrong password and a user that is not there are refused alike"):
        wrong = refused(1045, "a wrong password", lambda: connect(cluster, 1, "app", "wrong"))
        nobody = refused(1045, "no such user", lambda: connect(cluster, 1, "nobody", "wrong"))
        check_equal(wrong.replace("app", "nobody"), nobody, "texts")
        refused(1045, "no password", lambda: connect(cluster, 1, "app", ""))
        refused(1045, "a wrong native password", lambda: connect(cluster, 1, "old", "wrong"))
    with t.case("accounts that are locked, want TLS, or have their connections already"):
        refused(3118, "a locked account", lambda: connect(cluster, 0, "closed", "closed"))
        with contextlib.closing(connect(cluster, 0, "sure", "sure")):
            refused(1045, "without TLS", lambda: connect(cluster, 0, "sure", "sure", ssl=None, ssl_disabled=True))
        with contextlib.closing(connect(cluster, 0, "few", "few")):
            refused(1226, "a second connection", lambda: connect(cluster, 0, "few", "few"))
        ask(root, "ALTER USER closed ACCOUNT UNLOCK")
        connect(cluster, 1, "closed", "closed").close()


def privileges(t, cluster, root):
    other = connect(cluster, 1)
    app = connect(cluster, 1, "app", "app pass")
    with t.case("without a privilege nothing is seen and nothing is done"):
        refused(1044, "USE", lambda: ask(app, "USE shop"))
        for statement in ("SELECT * FROM shop.item", "INSERT INTO shop.item VALUES (9, 'x', 1)", "UPDATE shop.item SET price = 1", "DELETE FROM shop.item",
                          "SELECT nonesuch FROM shop.item", "SELECT * FROM shop.nonesuch", "DROP TABLE shop.item", "ALTER TABLE shop.item ADD x INT",
                          "CREATE TABLE shop.mine (id INT PRIMARY KEY)", "TRUNCATE shop.item", "SHOW COLUMNS FROM shop.item", "CREATE INDEX i ON shop.item (price)",
                          "CREATE VIEW shop.v AS SELECT 1", "EXPLAIN SELECT * FROM shop.item"):
            refused(1142, statement, lambda statement=statement: ask(app, statement))
        for statement in ("CREATE DATABASE mine", "DROP DATABASE shop"):
            refused(1044, statement, lambda statement=statement: ask(app, statement))
        for statement in ("CREATE USER x", "SET GLOBAL apus_durability = 'disk'", "FLUSH TABLES", "DROP USER few"):
            refused(1227, statement, lambda statement=statement: ask(app, statement))
        refused(1095, "KILL", lambda: ask(app, f"KILL {other.thread_id()}"))
        check_equal(ask(app, "SHOW DATABASES"), (("information_schema",),), "databases")
        check_equal(ask(app, "SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA <> 'information_schema'"), ((0,),), "tables")
        check_equal({row[1] for row in ask(app, "SHOW PROCESSLIST")}, {"app"}, "processes")
        check_equal(ask(app, "SHOW GRANTS"), (("GRANT USAGE ON *.* TO `app`@`%`",),), "grants")
    with t.case("what is granted on one node is granted on the other, and no more"):
        ask(root, "GRANT SELECT, UPDATE ON shop.item TO app")
        check_equal(ask(app, "SELECT price FROM shop.item WHERE id = 1"), ((9,),), "the row")
        ask(app, "UPDATE shop.item SET price = price + 1 WHERE id = 1")
        refused(1142, "another table", lambda: ask(app, "SELECT * FROM shop.secret"))
        refused(1142, "a join with it", lambda: ask(app, "SELECT * FROM shop.item JOIN shop.secret USING (id)"))
        refused(1142, "in a subquery", lambda: ask(app, "SELECT (SELECT MAX(v) FROM shop.secret) FROM shop.item"))
        refused(1142, "INSERT", lambda: ask(app, "INSERT INTO shop.item VALUES (9, 'x', 1)"))
        check_equal(ask(app, "SHOW TABLES FROM shop"), (("item",),), "tables")
        ask(app, "USE shop")
    with t.case("the grant tables are read by who may, listed by nobody and changed by statements alone"):
        refused(1142, "a grant table", lambda: ask(app, "SELECT user FROM mysql.user"))
        refused(1044, "their database", lambda: ask(app, "USE mysql"))
        for number in (0, 1):
            one = connect(cluster, number)
            ask(one, "USE mysql")
            found = ask(one, "SELECT host, select_priv FROM user WHERE user = 'app'")
            check_equal(found, (("%", "N"),), "the account in the grant table")
            check_equal(ask(one, "SELECT 1 FROM information_schema.schemata WHERE schema_name = 'mysql'"), (), "the database in a list")
            refused(1235, "a change", lambda one=one: ask(one, "UPDATE user SET select_priv = 'Y'"))
            refused(1235, "a new row", lambda one=one: ask(one, "INSERT INTO mysql.db VALUES ()"))
            refused(1146, "another table", lambda one=one: ask(one, "SELECT * FROM mysql.help_topic"))
            one.close()
    with t.case("a view shows what its definer may read, one of the invoker does not"):
        ask(root, "GRANT SELECT ON shop.told TO app")
        ask(root, "GRANT SELECT ON shop.asked TO app")
        check_equal(ask(app, "SELECT * FROM shop.told"), ((42,),), "by the definer")
        refused(1356, "by the invoker", lambda: ask(app, "SELECT * FROM shop.asked"))
    with t.case("who may grant gives no more than he has"):
        refused(1044, "without the option", lambda: ask(app, "GRANT SELECT ON other.* TO few"))
        ask(other, "GRANT SELECT ON other.* TO app WITH GRANT OPTION")
        ask(app, "GRANT SELECT ON other.* TO few")
        refused(1044, "another privilege", lambda: ask(app, "GRANT INSERT ON other.* TO few"))
        refused(1410, "nobody", lambda: ask(app, "GRANT SELECT ON other.* TO nobody"))
    with t.case("everybody changes his own password"):
        ask(app, "ALTER USER USER() IDENTIFIED BY 'new'")
        refused(1045, "the one before", lambda: connect(cluster, 0, "app", "app pass"))
        connect(cluster, 0, "app", "new").close()
    with t.case("an account that is dropped can do nothing in the session that it left"):
        few = connect(cluster, 1, "few", "few")
        check_equal(ask(few, "SELECT COUNT(*) FROM other.t"), ((0,),), "before")
        ask(root, "DROP USER few")
        refused(1142, "after", lambda: ask(few, "SELECT COUNT(*) FROM other.t"))
        refused(1045, "a login", lambda: connect(cluster, 1, "few", "few"))


def typed(cluster, number, user, password, statement, *options):
    """What the stock client says to a statement: its output, or its error."""
    code, text = stock(cluster, number, user, password, *options, ok=False, statement=statement)
    return text.strip() if code == 0 else next((line for line in text.splitlines() if line.startswith("ERROR")), text)


def errno(make):
    try:
        make()
    except pymysql.MySQLError as error:
        return error.args[0]
    return 0


def leave(cluster, user, password):
    """A client that ends its connection when the server asks for the password itself."""
    def end(connection, packet):
        connection._force_close()
        raise pymysql.err.OperationalError(2013, "left")

    kept = pymysql.connections._auth.caching_sha2_password_auth
    pymysql.connections._auth.caching_sha2_password_auth = end
    try:
        connect(cluster, 1, user, password)
    finally:
        pymysql.connections._auth.caching_sha2_password_auth = kept


def policies(t, cluster, root):
    both = (0, 1)

    def wrong(number):
        return lambda: connect(cluster, number, "shut", "wrong")

    with t.case("failed logins close an account at the SQL node that saw them; ACCOUNT UNLOCK on the other one opens it"):
        ask(root, "CREATE USER shut IDENTIFIED BY 'right' FAILED_LOGIN_ATTEMPTS 3 PASSWORD_LOCK_TIME 2")
        for number in both:
            for _ in range(2):
                refused(1045, "a wrong password", wrong(number))
            connect(cluster, number, "shut", "right").close()  # begins anew
        for _ in range(2):
            refused(1045, "a wrong password", wrong(1))
        text = refused(3955, "the third wrong one", wrong(1))
        check("blocked for 2 day(s) (2 day(s) remaining) due to 3 consecutive failed logins" in text, text)
        refused(3955, "the right one", lambda: connect(cluster, 1, "shut", "right"))
        refused(3955, "no password", lambda: connect(cluster, 1, "shut", ""))
        connect(cluster, 0, "shut", "right").close()
        ask(root, "ALTER USER shut COMMENT 'closed'")
        refused(3955, "another change", lambda: connect(cluster, 1, "shut", "right"))
        ask(root, "ALTER USER shut ACCOUNT UNLOCK")
        connect(cluster, 1, "shut", "right").close()
        ask(root, "ALTER USER shut PASSWORD_LOCK_TIME UNBOUNDED FAILED_LOGIN_ATTEMPTS 1")
        text = refused(3955, "the first wrong one", wrong(1))
        check("blocked for unlimited day(s) (unlimited day(s) remaining)" in text, text)
        other = connect(cluster, 1)
        ask(other, "FLUSH PRIVILEGES")
        connect(cluster, 1, "shut", "right").close()
        other.close()
    with t.case("who leaves when he is asked for the password that his short proof was wrong for has failed"):
        refused(2013, "who leaves", lambda: leave(cluster, "shut", "wrong"))
        wait_until(lambda: errno(lambda: connect(cluster, 1, "shut", "right").close()) == 3955, 10, "the account is closed")
        ask(root, "ALTER USER shut ACCOUNT UNLOCK")
        refused(2013, "who leaves", lambda: leave(cluster, "shut", "wrong"))
        wait_until(lambda: errno(lambda: connect(cluster, 1, "shut", "right").close()) == 3955, 10, "the account is closed again")
    with t.case("limits an hour: connections, statements and changes of each SQL node, prepared ones too"):
        ask(root, "CREATE USER busy IDENTIFIED BY 'b' WITH MAX_CONNECTIONS_PER_HOUR 2 MAX_QUERIES_PER_HOUR 5 MAX_UPDATES_PER_HOUR 2")
        ask(root, "GRANT ALL ON other.* TO busy")
        for number in both:
            first = connect(cluster, number, "busy", "b")  # two statements: names and autocommit
            second = mysql.connector.connect(**node(cluster, number), user="busy", password="b", use_pure=True)
            text = refused(1226, "a third login", lambda number=number: connect(cluster, number, "busy", "b"))
            check_equal(text, "User 'busy' has exceeded the 'max_connections_per_hour' resource (current value: 2)", "the text")
            one = connect(cluster, number)
            ask(one, "FLUSH USER_RESOURCES")
            ask(first, "INSERT INTO other.t VALUES (7)")
            cursor = second.cursor(prepared=True)
            cursor.execute("DELETE FROM other.t WHERE id = %s", (7,))
            second.commit()
            text = refused(1226, "a third change", lambda first=first: ask(first, "DELETE FROM other.t"))
            check("'max_updates' resource (current value: 2)" in text, text)
            check_equal(ask(first, "SELECT COUNT(*) FROM other.t"), ((0,),), "the fifth statement")
            text = refused(1226, "a sixth statement", lambda first=first: ask(first, "SELECT 1"))
            check("'max_questions' resource (current value: 5)" in text, text)
            first.ping(reconnect=False)
            ask(one, "ALTER USER busy WITH MAX_QUERIES_PER_HOUR 0")
            check_equal(ask(first, "SELECT 1"), ((1,),), "without the limit")
            ask(one, "ALTER USER busy WITH MAX_QUERIES_PER_HOUR 5")
            for connection in (first, second, one):
                connection.close()
    with t.case("an expired password: clients that cannot change it are told so, others change it and go on"):
        ask(root, "CREATE USER old_one IDENTIFIED BY 'o' PASSWORD EXPIRE")
        ask(root, "GRANT SELECT ON shop.* TO old_one")
        for number, now, then in ((0, "o", "p"), (1, "p", "q")):
            refused(1862, "PyMySQL", lambda number=number, now=now: connect(cluster, number, "old_one", now))
            refused(1862, "Connector/Python", lambda number=number, now=now: mysql.connector.connect(**node(cluster, number), user="old_one", password=now))
            check("ERROR 1862" in typed(cluster, number, "old_one", now, "SELECT 1"), "a batch")
            able = ("--connect-expired-password", "--database=shop")
            for statement in ("SELECT 1", "SET @a = 1", "USE shop", "DO 1", "BEGIN", "ALTER USER old_one ACCOUNT UNLOCK", "SET PASSWORD FOR app = 'x'",
                              "CREATE PROCEDURE shop.p() SELECT 1", "PREPARE s FROM 'SELECT 1'"):
                check("ERROR 1820" in typed(cluster, number, "old_one", now, statement, *able), statement)
            change = f"ALTER USER USER() IDENTIFIED BY '{then}'" if number else f"SET PASSWORD = '{then}'"
            check_equal(typed(cluster, number, "old_one", now, f"{change}; SELECT COUNT(*) FROM item", *able), "2", "behind the change")
            connect(cluster, 1 - number, "old_one", then).close()
            ask(root, "ALTER USER old_one PASSWORD EXPIRE")
        ask(root, "ALTER USER old_one IDENTIFIED BY 'r' PASSWORD EXPIRE INTERVAL 30 DAY")
        connect(cluster, 1, "old_one", "r").close()
        ask(root, "SET timestamp = 1700000000")
        ask(root, "ALTER USER old_one IDENTIFIED BY 's'")
        ask(root, "SET timestamp = DEFAULT")
        refused(1862, "a password of 2023", lambda: connect(cluster, 1, "old_one", "s"))
        ask(root, "ALTER USER old_one PASSWORD EXPIRE DEFAULT")
        connect(cluster, 1, "old_one", "s").close()
        one = connect(cluster, 1)
        ask(one, "SET GLOBAL default_password_lifetime = 30")
        refused(1862, "by the default of its node", lambda: connect(cluster, 1, "old_one", "s"))
        connect(cluster, 0, "old_one", "s").close()
        ask(one, "SET GLOBAL default_password_lifetime = DEFAULT")
        one.close()
    with t.case("what is noted about accounts is the same on both nodes"):
        ask(root, "ALTER USER old_one ATTRIBUTE '{\"team\": \"birds\"}' ")
        for number in both:
            one = connect(cluster, number)
            found = ask(one, "SELECT ATTRIBUTE FROM information_schema.USER_ATTRIBUTES WHERE USER = 'old_one'")
            check_equal(found, (('{"team": "birds"}',),), f"node {number}")
            one.close()


def at_once(t, cluster, root, rounds, what):
    """A prepared statement and one in text, each on a node of its own, before and after each GRANT and REVOKE on either."""
    with t.case(f"{rounds} times: a REVOKE that has returned holds on both nodes, {what}"):
        roots = [root, connect(cluster, 1)]
        texts = [connect(cluster, number, "app", "new") for number in (0, 1)]
        prepared = [mysql.connector.connect(**node(cluster, number), user="app", password="new", autocommit=True) for number in (0, 1)]
        cursors = [connection.cursor(prepared=True) for connection in prepared]
        statement = "SELECT v FROM shop.secret WHERE id = %s"

        def run_prepared(cursor):
            cursor.execute(statement, (1,))
            return cursor.fetchall()

        def refused_prepared(cursor, what):
            try:
                run_prepared(cursor)
            except mysql.connector.Error as error:
                check("SELECT command denied" in str(error), f"{what}, prepared: {error}")  # the driver hides the number
                return
            raise Failure(f"{what}: the prepared statement was not refused")

        for number in range(rounds):
            ask(roots[number % 2], "GRANT SELECT ON shop.secret TO app")
            for text, cursor in zip(texts, cursors):
                check_equal(ask(text, "SELECT v FROM shop.secret"), ((42,),), f"round {number}")
                check_equal(run_prepared(cursor), [(42,)], f"round {number}, prepared")
            ask(roots[(number + number // 2) % 2], "REVOKE SELECT ON shop.secret FROM app")
            for text, cursor in zip(texts, cursors):
                refused(1142, f"round {number}", lambda text=text: ask(text, "SELECT v FROM shop.secret"))
                refused_prepared(cursor, f"round {number}")


def a_node_dies_meanwhile(t, cluster, root):
    failed = []

    def kill_and_restart():
        try:
            cluster.kill(2)
            cluster.restart(2)
            cluster.wait_up(2)
        except BaseException as error:  # told by the case
            failed.append(error)

    killer = threading.Thread(target=kill_and_restart)
    killer.start()
    at_once(t, cluster, root, ROUNDS, "while a data node dies and comes back")
    killer.join()
    check(not failed, f"{failed}")


def body(t):
    directory = t.directory / "data"
    with Cluster(t, sql_nodes=2, dir=directory) as cluster:
        root = connect(cluster, 0)
        with t.case("before the first account there is root, who may do everything"):
            check_equal(ask(root, "SELECT CURRENT_USER()"), (("root@%",),), "the account")
            check(ask(root, "SHOW GRANTS")[0][0].endswith("ON *.* TO `root`@`%` WITH GRANT OPTION"), "grants")
            refused(1235, "DROP USER", lambda: ask(root, "DROP USER root"))
        logins(t, cluster, root)
        privileges(t, cluster, root)
        policies(t, cluster, root)
        shown = ask(root, "SHOW CREATE USER old_one")
        at_once(t, cluster, root, ROUNDS, "with all data nodes")
        a_node_dies_meanwhile(t, cluster, root)
        grants = ask(root, "SHOW GRANTS FOR app")
    with t.case("a start from the disks has the accounts"), Cluster(t, name="again", sql_nodes=2, dir=directory) as cluster:
        with contextlib.closing(connect(cluster, 1)) as root:
            check_equal(ask(root, "SHOW GRANTS FOR app"), grants, "grants")
            check_equal(ask(root, "SHOW CREATE USER old_one"), shown, "the policy")
        with contextlib.closing(connect(cluster, 0, "app", "new")) as app:
            refused(1142, "what was revoked", lambda: ask(app, "SELECT v FROM shop.secret"))
            check_equal(ask(app, "SELECT COUNT(*) FROM shop.item"), ((2,),), "what was granted")
        refused(1045, "what was dropped", lambda: connect(cluster, 0, "few", "few"))


if __name__ == "__main__":
    scenario_main(body)
