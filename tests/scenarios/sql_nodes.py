"""The connections of all SQL nodes in one list: their ids, KILL of those of another SQL node, attributes of clients, definitions that `apus status` tells of, and SQL nodes that die, hang and go on."""

import contextlib
import os
import signal
import time

import pymysql

from lib.cluster import Cluster
from lib.harness import check, check_equal, run, scenario_main, wait_until
from lib.sessions import Later, ask, connect, refused

LIMIT_SECONDS = (150, 240)
# Ids of a SQL node (crates/sql/src/server/limits.rs).
IDS = 10_000_000
# Seconds after which a SQL node that has not answered is dead (crates/sql/src/session/peers/mod.rs), and that an answer is waited for, with room for a machine that is busy.
DEAD = 10
ANSWER = 1
ROOM = 3


def fetch(connection, statement):
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchall()


def warned(connection):
    return [row[2] for row in fetch(connection, "SHOW WARNINGS")]


def number(connection):
    return connection.thread_id() // IDS


def listed(connection, statement="SHOW PROCESSLIST", column=0):
    return {row[column] for row in fetch(connection, statement)}


def ids(t, nodes):
    one, two = (connect(node) for node in nodes)
    with t.case("ids hold the number of their SQL node, in the greeting as in CONNECTION_ID() and in every list"):
        check(number(one) != number(two) and number(one) > 0 and number(two) > 0, f"{one.thread_id()}, {two.thread_id()}")
        both = {one.thread_id(), two.thread_id()}
        for connection in (one, two):
            check_equal(ask(connection, "SELECT CONNECTION_ID()"), connection.thread_id(), "CONNECTION_ID()")
            for statement, column in (("SHOW PROCESSLIST", 0), ("SHOW FULL PROCESSLIST", 0), ("SELECT id FROM information_schema.processlist", 0), ("SELECT id FROM performance_schema.processlist", 0),
                                      ("SELECT processlist_id FROM performance_schema.threads", 0), ("SELECT conn_id FROM sys.processlist", 0)):
                found = listed(connection, statement, column)
                check(both <= found, f"{statement}: {found}")
                check_equal(fetch(connection, "SHOW WARNINGS"), (), statement)
    with t.case("what a session of another SQL node does is told as at its own"):
        late = Later(connect(nodes[1], program_name="sleeper"), "SELECT SLEEP(30) AS asleep")
        wait_until(lambda: any(row[0] == late.id and row[7] == "SELECT SLEEP(30) AS asleep" for row in fetch(one, "SHOW FULL PROCESSLIST")), 10, "it is shown")
        row = next(row for row in fetch(one, "SHOW FULL PROCESSLIST") if row[0] == late.id)
        check_equal(row[1:5] + row[6:], ("root", "localhost", "shop", "Query", "executing", "SELECT SLEEP(30) AS asleep"), "the line")
        check_equal(refused(one, f"KILL QUERY {late.id}"), None, "KILL QUERY")
        check_equal(late.done().error, 1317, "the statement")
        check(late.took < 20, f"{late.took} s")
        late.connection.close()
    with t.case("attributes of clients, of all SQL nodes"):
        named = connect(nodes[1], program_name="the-other")
        rows = "SELECT attr_value, ordinal_position >= 0 FROM performance_schema.{} WHERE attr_name = 'program_name' AND processlist_id = " + str(named.thread_id())
        for table in ("session_connect_attrs", "session_account_connect_attrs"):
            check_equal(fetch(one, rows.format(table)), (("the-other", 1),), table)
        joined = "SELECT t.processlist_command FROM performance_schema.threads t JOIN performance_schema.session_connect_attrs a USING (processlist_id) WHERE a.attr_value = 'the-other'"
        check_equal(fetch(one, joined), (("Sleep",),), "with the threads")
        named.close()
        check_equal(ask(one, "SELECT @@performance_schema"), 1, "it is on")
        check_equal(listed(one, "SELECT name FROM performance_schema.setup_consumers WHERE enabled = 'YES'"),
                    {"events_statements_current", "events_statements_history", "global_instrumentation", "thread_instrumentation", "statements_digest"}, "what is collected")
    one.close()
    two.close()


def kills(t, nodes):
    one = connect(nodes[0])
    with t.case("KILL, KILL QUERY and COM_PROCESS_KILL of sessions of another SQL node"):
        for statement in ("KILL {}", "KILL CONNECTION {}"):
            doomed = connect(nodes[1])
            ask(one, statement.format(doomed.thread_id()))
            check(refused(doomed, "SELECT 1") in (1927, 2006, 2013), statement)
        doomed = connect(nodes[1])
        one.kill(doomed.thread_id())
        check(refused(doomed, "SELECT 1") in (1927, 2006, 2013), "COM_PROCESS_KILL")
        late = Later(connect(nodes[1]), "SELECT COUNT(*) FROM big a JOIN big b JOIN big c JOIN big d WHERE a.n + b.n + c.n + d.n < 0")
        wait_until(lambda: any(row[0] == late.id and row[7] for row in fetch(one, "SHOW PROCESSLIST")), 10, "it runs")
        ask(one, f"KILL QUERY {late.id}")
        check_equal(late.done().error, 1317, "KILL QUERY")
        check_equal(ask(late.connection, "SELECT 1"), 1, "its connection lives")
    with t.case("errors and privileges are those of one server"):
        for unknown in (3, number(one) * IDS + 999_999, number(late.connection) * IDS + 999_999, 400 * IDS + 1):
            check_equal(refused(one, f"KILL {unknown}"), 1094, f"{unknown}")
        ask(one, "CREATE USER app IDENTIFIED WITH mysql_native_password BY 'app'")
        ask(one, "GRANT SELECT ON shop.* TO app")
        mine = [pymysql.connect(host=node["host"], port=node["port"], user="app", password="app", database="shop", autocommit=True) for node in nodes]
        check_equal(refused(mine[0], f"KILL {late.id}"), 1095, "of root, at the other")
        check_equal(refused(mine[1], f"KILL QUERY {late.id}"), 1095, "of root, here")
        try:
            mine[0].kill(late.id)
            check(False, "COM_PROCESS_KILL of another's session")
        except pymysql.MySQLError as error:
            check_equal(error.args[0], 1095, "COM_PROCESS_KILL")
        check_equal(listed(mine[0]), {session.thread_id() for session in mine}, "what it sees")
        ask(mine[0], f"KILL {mine[1].thread_id()}")
        check(refused(mine[1], "SELECT 1") in (1927, 2006, 2013), "its own")
        mine[0].close()
    with t.case("mysqladmin lists and ends them"):
        admin = ["mysqladmin", f"-h{nodes[0]['host']}", f"-P{nodes[0]['port']}", "-uroot"]
        code, text = run([*admin, "processlist"], ok=False)
        check(code == 0 and str(late.id) in text, text)
        code, text = run([*admin, "kill", str(late.id)], ok=False)
        check_equal((code, text.strip()), (0, ""), "mysqladmin kill")
        check(refused(late.connection, "SELECT 1") in (1927, 2006, 2013), "it is gone")
    one.close()


def definitions(t, cluster, nodes):
    one, two = (connect(node) for node in nodes)
    with t.case("apus status tells of definitions of every SQL node, in the words of the process list"):
        ask(two, "SET apus_alter_rate = 200")
        late = Later(two, "ALTER TABLE big ADD UNIQUE KEY (n)")
        found = lambda: [told for told in cluster.status()["definitions"] if told["connection"] == late.id and told["rows"]]
        wait_until(found, 20, "it is told of")
        told = found()[0]
        check_equal((told["sql"], told["database"], told["table"], told["user"]), (number(two), "shop", "big", "root"), "which")
        check(0 < told["rows"] <= told["rows_in_all"] and told["rows_in_all"] >= 1000 and told["rows_per_second"] > 0, f"{told}")
        check(told["phase"] in told["state"] and f"{told['rows']} rows of about {told['rows_in_all']}" in told["state"], f"{told}")
        shown = [row[6] for row in fetch(one, "SHOW PROCESSLIST") if row[0] == late.id]
        check(shown and shown[0].startswith(told["phase"] + ": "), f"{shown}")
        _, text = cluster.apus("status")
        check(f"SQL node {number(two)} changes shop.big (connection {late.id}" in text and "rows of about" in text, text)
        ask(one, f"KILL QUERY {late.id}")
        check_equal(late.done().error, 1317, "it is ended from the other SQL node")
        wait_until(lambda: not cluster.status()["definitions"], 10, "it is told of no more")
        nodes_told = {(told["number"], told["answers"]) for told in cluster.status()["sql"]}
        check({(number(one), True), (number(two), True)} <= nodes_told, f"{nodes_told}")
    one.close()
    two.close()


def timed(connection, statement):
    begin = time.monotonic()
    rows = fetch(connection, statement)
    return rows, time.monotonic() - begin


def hung(t, cluster, nodes):
    one, kept = connect(nodes[0]), connect(nodes[1])
    address = f"{nodes[1]['host']}:{nodes[1]['port']}"
    os.kill(nodes[1]["pid"], signal.SIGSTOP)
    try:
        with t.case("a SQL node that hangs is named, and holds the list up for a second"):
            rows, took = timed(one, "SHOW PROCESSLIST")
            check(any(row[0] == one.thread_id() for row in rows) and not any(row[0] == kept.thread_id() for row in rows), f"{rows}")
            check(took < ANSWER + ROOM, f"{took} s")
            check_equal([address in text and "has not answered" in text for text in warned(one)], [True], "warnings")
            begin = time.monotonic()
            check_equal(refused(one, f"KILL {kept.thread_id()}"), 1105, "KILL")
            check(time.monotonic() - begin < 2 * ANSWER + ROOM, "KILL takes long")
            silent = [told["address"] for told in cluster.status()["sql"] if not told["answers"]]
            check_equal(silent, [address], "apus status")
        with t.case("after some seconds it counts as dead"):
            wait_until(lambda: timed(one, "SHOW PROCESSLIST") and not warned(one), DEAD + 15, "nobody warns any more")
            check_equal(refused(one, f"KILL {kept.thread_id()}"), 1094, "KILL")
    finally:
        os.kill(nodes[1]["pid"], signal.SIGCONT)
    with t.case("it goes on, and so do its sessions, with their ids"):
        wait_until(lambda: kept.thread_id() in listed(one), 10, "it is there again")
        check_equal(ask(kept, "SELECT CONNECTION_ID()"), kept.thread_id(), "its id")
        check(one.thread_id() in listed(kept) and not warned(kept), "and sees the others")
        with contextlib.closing(connect(nodes[1])) as late:
            check_equal(number(late), number(kept), "the number of the SQL node")
        ask(one, f"KILL {kept.thread_id()}")
        check(refused(kept, "SELECT 1") in (1927, 2006, 2013), "nobody had ended it before, and now somebody does")
    one.close()


def killed(t, cluster, nodes):
    one = connect(nodes[0])
    with t.case("a SQL node that is killed is named for some seconds, then it is gone; another one has another number"):
        process, node = cluster.more_sql("doomed")
        doomed = connect(node)
        check(doomed.thread_id() in listed(one), "it is there")
        process.kill()
        process.wait()
        rows, took = timed(one, "SHOW PROCESSLIST")
        check(took < ANSWER + ROOM and not any(row[0] == doomed.thread_id() for row in rows), f"{took} s, {rows}")
        check(any(f"{node['host']}:{node['port']}" in text for text in warned(one)), f"{warned(one)}")
        more, late = cluster.more_sql("late")
        with contextlib.closing(connect(late)) as connection:
            check(number(connection) not in (number(one), number(doomed)), f"{connection.thread_id()}")
        wait_until(lambda: timed(one, "SHOW PROCESSLIST") and not warned(one), DEAD + 15, "nobody warns any more")
    with t.case("one that ends as it should is missed by nobody"):
        more.terminate()
        more.wait(20)
        rows, took = timed(one, "SHOW PROCESSLIST")
        check_equal(warned(one), [], "warnings")
    with t.case("a data node dies and comes back: the list is whole"):
        two = connect(nodes[1])
        for node in cluster.kill_each():
            check({one.thread_id(), two.thread_id()} <= listed(one), f"after data node {node}")
            check_equal(warned(one), [], "warnings")
        two.close()
    one.close()


def body(t):
    with Cluster(t, sql_nodes=2) as cluster:
        nodes = cluster.describe()["sql"]
        with contextlib.closing(pymysql.connect(host=nodes[0]["host"], port=nodes[0]["port"], user="root", autocommit=True)) as connection:
            ask(connection, "CREATE DATABASE shop")
            ask(connection, "CREATE TABLE shop.big (id INT PRIMARY KEY, n INT)")
            ask(connection, "INSERT INTO shop.big WITH RECURSIVE r (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM r WHERE i < 1000) SELECT i, i FROM r")
        ids(t, nodes)
        kills(t, nodes)
        definitions(t, cluster, nodes)
        hung(t, cluster, nodes)
        killed(t, cluster, nodes)


if __name__ == "__main__":
    scenario_main(body)
