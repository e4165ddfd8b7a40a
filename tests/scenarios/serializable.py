"""SERIALIZABLE: no write skew by rows, ranges or keys that are not there; what is in nobody's way commits; a history of lists under kill -9 is strictly serializable."""

import random
import threading
import time

import pymysql

from lib.cluster import Cluster
from lib.harness import BINARY, FULL, check, check_equal, run, scenario_main, wait_until

LIMIT_SECONDS = (240, 900)
SIDE_BY_SIDE = True
SERIALIZABLE = "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE"
# What a client runs again: rolled back, or perhaps committed.
ROLLED_BACK, UNKNOWN = (1213, 1205, 1297), (1180, 2013, 2006)
LISTS, SECONDS, WRITERS = 6, 120 if FULL else 20, 8


def fetch(cursor, statement, *arguments):
    cursor.execute(statement, arguments)
    return [row[0] if len(row) == 1 else row for row in cursor.fetchall()]


def code_of(run, *arguments):
    """The number of the error, 0 without one."""
    try:
        run(*arguments)
    except pymysql.MySQLError as error:
        return error.args[0]
    return 0


def both(t, connect, name, first, second, winner=1):
    """Two transactions that read, then write, then commit: `winner` of them may."""
    with t.case(name):
        a, b = connect(), connect()
        outcomes = {}
        for connection in (a, b):
            connection.begin()
        for connection, (reads, _) in ((a, first), (b, second)):
            for statement in reads:
                connection.cursor().execute(statement)
        for connection, (_, writes) in ((a, first), (b, second)):
            for statement in writes:
                connection.cursor().execute(statement)
        # At once: where each has changed what the other has read they wait for each other.
        threads = [threading.Thread(target=lambda c=c: outcomes.update({c: code_of(c.commit)})) for c in (a, b)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        check_equal(sorted(outcomes.values()), [0, 0] if winner == 2 else [0, 1213], "outcomes of COMMIT")
        for connection in (a, b):
            connection.close()


class Lists(threading.Thread):
    """Transactions of one to three reads and appends; a list is the rows of a key, an append its next number."""

    lock, events, began = threading.Lock(), [], time.monotonic_ns()

    def __init__(self, number, connect, stop):
        super().__init__()
        self.number, self.connect, self.stop, self.value = number, connect, stop, number
        self.counts, self.errors = {"ok": 0, "fail": 0, "info": 0}, []

    def tell(self, kind, ops):
        def value(op):
            return f"[:r {op[1]} {'nil' if op[2] is None else '[' + ' '.join(map(str, op[2])) + ']'}]" if op[0] == "r" else f"[:append {op[1]} {op[2]}]"

        with self.lock:
            time_ns = time.monotonic_ns() - self.began
            text = " ".join(map(value, ops))
            self.events.append(f"{{:index {len(self.events)}, :type :{kind}, :process {self.number}, :time {time_ns}, :f :txn, :value [{text}]}}")

    def drawn(self, rng):
        ops = []
        for _ in range(rng.randrange(1, 4)):
            key = rng.randrange(LISTS)
            if rng.random() < 0.5:
                ops.append(["r", key, None])
            else:
                self.value += WRITERS
                ops.append(["append", key, self.value])
        return ops

    def carry_out(self, cursor, rng, ops):
        for op in ops:
            if op[0] == "r":
                form = rng.randrange(4)
                if form == 0:
                    op[2] = fetch(cursor, "SELECT v FROM item WHERE k = %s ORDER BY n", op[1])
                elif form == 1:
                    op[2] = fetch(cursor, "SELECT i.v FROM list l JOIN item i ON i.k = l.k WHERE l.k = %s ORDER BY i.n", op[1])
                elif form == 2:
                    op[2] = fetch(cursor, "SELECT v FROM item WHERE k = %s ORDER BY n FOR SHARE", op[1])
                else:
                    op[2] = [v for k, _, v in fetch(cursor, "SELECT k, n, v FROM item ORDER BY k, n") if k == op[1]]
            elif rng.random() < 0.5:
                cursor.execute("INSERT INTO item SELECT %s, COALESCE(MAX(n), 0) + 1, %s FROM item WHERE k = %s", (op[1], op[2], op[1]))
            else:
                last = fetch(cursor, "SELECT MAX(n) FROM item WHERE k = %s", op[1])[0] or 0
                cursor.execute("INSERT INTO item VALUES (%s, %s, %s)", (op[1], last + 1, op[2]))

    def run(self):
        rng, connection = random.Random(self.number), None
        while not self.stop.is_set():
            ops = self.drawn(rng)
            told, kind, is_told = [list(op) for op in ops], "fail", False
            try:
                if connection is None:
                    connection = self.connect()
                self.tell("invoke", told)
                is_told = True
                connection.begin()
                self.carry_out(connection.cursor(), rng, ops)
                kind = "info"
                connection.commit()
                kind = "ok"
            except pymysql.MySQLError as error:
                code = error.args[0]
                if code in ROLLED_BACK or code == 1062:
                    kind = "fail"
                elif code not in UNKNOWN:
                    self.errors.append(error)
                    kind = "info"
                # The connection may be gone with what is open on it.
                if code in UNKNOWN or connection is None or code_of(connection.rollback) != 0:
                    connection = None
            if is_told:
                self.counts[kind] += 1
                self.tell(kind, ops if kind == "ok" else told)
            if kind != "ok":
                time.sleep(rng.random() * 0.01)


def main(t):
    with Cluster(t, sql_nodes=2) as cluster:
        nodes = [(node["host"], node["port"]) for node in cluster.describe()["sql"]]

        def connect(database="ser", node=None, level=SERIALIZABLE, autocommit=True):
            host, port = nodes[random.randrange(2) if node is None else node]
            return pymysql.connect(host=host, port=port, user="root", database=database, autocommit=autocommit, init_command=level)

        setup = connect(None, level=None).cursor()
        for statement in [
            "CREATE DATABASE ser",
            "CREATE TABLE ser.doctor (id INT PRIMARY KEY, shift INT NOT NULL, on_call INT NOT NULL, name VARCHAR(20), KEY (shift), UNIQUE KEY (name))",
            "CREATE TABLE ser.counter (id INT PRIMARY KEY, n INT NOT NULL)",
            "INSERT INTO ser.counter VALUES (1, 0), (2, 0), (3, 0)",
            "INSERT INTO ser.doctor VALUES (1, 1, 1, 'a'), (2, 1, 1, 'b'), (3, 2, 1, 'c'), (4, 2, 1, 'd')",
            "CREATE TABLE ser.parent (id INT PRIMARY KEY)",
            "CREATE TABLE ser.child (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES ser.parent (id))",
            "CREATE TABLE ser.item (k INT, n INT, v INT, PRIMARY KEY (k, n))",
            "CREATE TABLE ser.list (k INT PRIMARY KEY)",
            "INSERT INTO ser.list VALUES " + ", ".join(f"({k})" for k in range(LISTS)),
        ]:
            setup.execute(statement)

        with t.case("the level is in force and said"):
            c = connect().cursor()
            check_equal(fetch(c, "SELECT @@transaction_isolation"), ["SERIALIZABLE"], "level")
            c.execute("SHOW WARNINGS")
            check_equal(c.fetchall(), (), "warnings")

        def off(doctor):
            return [f"UPDATE doctor SET on_call = 0 WHERE id = {doctor}"]

        def add(doctor, shift, name):
            return [f"INSERT INTO doctor VALUES ({doctor}, {shift}, 1, '{name}')"]

        skews = [
            ("rows by primary key", ["SELECT * FROM doctor WHERE id IN (1, 2)"], off(1), off(2)),
            ("a range of an index", ["SELECT COUNT(*) FROM doctor WHERE shift = 2"], off(3), off(4)),
            ("rows that appear in a range", ["SELECT COUNT(*) FROM doctor WHERE shift = 7"], add(10, 7, "e"), add(11, 7, "f")),
            ("rows that appear anywhere", ["SELECT SUM(on_call) FROM doctor"], add(12, 8, "g"), add(13, 8, "h")),
            ("a key that is not there", ["SELECT * FROM doctor WHERE id = 20", "SELECT * FROM doctor WHERE id = 21"], add(20, 9, "i"), add(21, 9, "j")),
            ("a unique key that is not there", ["SELECT * FROM doctor WHERE name IN ('k', 'l')"], add(22, 10, "k"), add(23, 10, "l")),
            ("a join", ["SELECT * FROM counter c JOIN doctor d ON d.shift = c.id + 40"], add(24, 41, "m"), add(25, 42, "n")),
            ("a subquery", ["SELECT (SELECT MAX(id) FROM doctor WHERE shift = 50)"], add(26, 50, "o"), add(27, 50, "p")),
            ("a key that was to be locked and is not there", ["SELECT * FROM doctor WHERE id IN (30, 31) FOR UPDATE"], add(30, 11, "q"), add(31, 11, "r")),
            ("a key that was to be changed and is not there", ["UPDATE doctor SET on_call = 2 WHERE id IN (32, 33)"], add(32, 12, "s"), add(33, 12, "t")),
            ("a range that was to be locked", ["SELECT * FROM doctor WHERE shift = 60 FOR SHARE"], add(34, 60, "u"), add(35, 60, "v")),
            ("a range that was to be deleted", ["DELETE FROM doctor WHERE shift = 61"], add(36, 61, "w"), add(37, 61, "x")),
        ]
        for name, reads, one, other in skews:
            both(t, connect, f"no write skew by {name}", (reads, one), (reads, other))
        both(
            t, connect, "INSERT ... SELECT reads what it inserts from",
            ([], ["INSERT INTO counter SELECT 100 + COUNT(*), 0 FROM doctor WHERE shift = 70"]),
            (["SELECT COUNT(*) FROM counter WHERE id >= 100"], add(40, 70, "y")),
        )
        both(t, connect, "transactions on other rows commit", (["SELECT n FROM counter WHERE id = 1"], ["UPDATE counter SET n = n + 1 WHERE id = 1"]),
             (["SELECT n FROM counter WHERE id = 2"], ["UPDATE counter SET n = n + 1 WHERE id = 2"]), 2)
        both(t, connect, "a transaction that only reads commits", (["SELECT COUNT(*) FROM doctor"], off(1)), (["SELECT COUNT(*) FROM doctor"], []), 2)

        with t.case("what a duplicate key has told counts as read"):
            a, b = connect(), connect()
            for connection in (a, b):
                connection.begin()
            check_equal(code_of(a.cursor().execute, "INSERT INTO doctor VALUES (2, 1, 1, 'dup')"), 1062, "insert")
            b.cursor().execute("DELETE FROM doctor WHERE id = 2")
            b.commit()
            a.cursor().execute("UPDATE counter SET n = 7 WHERE id = 3")
            check_equal(code_of(a.commit), 1213, "commit after the row is gone")

        with t.case("what a foreign key has told counts as read"):
            a, b = connect(), connect()
            a.begin()
            check_equal(code_of(a.cursor().execute, "INSERT INTO child VALUES (1, 1)"), 1452, "insert")
            b.cursor().execute("INSERT INTO parent VALUES (1)")
            a.cursor().execute("UPDATE counter SET n = 7 WHERE id = 3")
            check_equal(code_of(a.commit), 1213, "commit after the parent is there")

        with t.case("own changes are in nobody's way"):
            c = connect()
            c.begin()
            cursor = c.cursor()
            for statement in [
                "SELECT * FROM doctor", "INSERT INTO doctor VALUES (50, 80, 1, 'z')", "SELECT * FROM doctor WHERE id = 50", "SELECT * FROM doctor WHERE name = 'z'",
                "UPDATE doctor SET shift = 81, name = 'zz' WHERE id = 50", "SELECT * FROM doctor WHERE shift = 81", "SELECT * FROM doctor WHERE name IN ('z', 'zz')",
                "DELETE FROM doctor WHERE id = 3", "SELECT * FROM doctor WHERE id = 3", "SELECT * FROM doctor WHERE id = 3 FOR UPDATE", "DELETE FROM doctor WHERE id = 3",
                "UPDATE doctor SET id = 51 WHERE id = 50", "SELECT * FROM doctor WHERE id IN (50, 51) FOR UPDATE", "SELECT COUNT(*) FROM doctor",
            ]:
                cursor.execute(statement)
            check_equal(code_of(c.commit), 0, "commit")
            check_equal(fetch(cursor, "SELECT name FROM doctor WHERE id IN (3, 50, 51)"), ["zz"], "rows")

        with t.case("changes that wait at the SQL node are in nobody's way"):
            c = connect()
            c.begin()
            cursor = c.cursor()
            for statement in [
                "SELECT * FROM counter WHERE id = 2 FOR UPDATE", "UPDATE counter SET n = 70 WHERE id = 2",
                "INSERT INTO counter SELECT id + 200, n FROM counter WHERE id = 2",
            ]:
                cursor.execute(statement)
            check_equal(code_of(c.commit), 0, "commit")
            check_equal(fetch(cursor, "SELECT n FROM counter WHERE id IN (2, 202)"), [70, 70], "rows")

        with t.case("who waited for a row by its key reads it as it is then"):
            a, b, watcher = connect(node=0), connect(node=0), connect(node=0, level=None).cursor()
            for connection in (a, b):
                connection.begin()
            a.cursor().execute("UPDATE doctor SET on_call = 5 WHERE id = 4")
            waiting = threading.Thread(target=b.cursor().execute, args=("UPDATE doctor SET on_call = on_call + 1 WHERE id = 4",))
            waiting.start()
            wait_until(lambda: any("on_call + 1" in (info or "") for info in fetch(watcher, "SELECT info FROM information_schema.processlist")), 10, "the second UPDATE is under way")
            a.commit()
            waiting.join()
            check_equal(fetch(b.cursor(), "SELECT on_call FROM doctor WHERE id = 4"), [6], "the row")
            check_equal(code_of(b.commit), 0, "commit")

        with t.case("who waits for a row that is locked by its key commits"):
            counts, errors = [0] * 8, []

            def raise_counter(n):
                connection = connect()
                for _ in range(20):
                    connection.begin()
                    code = code_of(connection.cursor().execute, "SELECT n FROM counter WHERE id = 1 FOR UPDATE")
                    code = code or code_of(connection.cursor().execute, "UPDATE counter SET n = n + 1 WHERE id = 1")
                    code = code or code_of(connection.commit)
                    if code:
                        errors.append(code)
                    else:
                        counts[n] += 1

            before = fetch(setup, "SELECT n FROM ser.counter WHERE id = 1")[0]
            threads = [threading.Thread(target=raise_counter, args=(n,)) for n in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            check_equal(errors, [], "errors")
            check_equal(fetch(setup, "SELECT n FROM ser.counter WHERE id = 1")[0] - before, 160, "sum")

        with t.case("statements alone are serializable, too"):
            # Each adds a row as long as there are fewer than ten: under weaker levels there are more in the end.
            codes = set()

            def fill(n):
                connection = connect()
                statement = "INSERT INTO doctor SELECT {}, 90, 1, NULL FROM counter WHERE id = 1 AND (SELECT COUNT(*) FROM doctor WHERE shift = 90) < 10"
                for i in range(5):
                    while code := code_of(connection.cursor().execute, statement.format(1000 + 10 * n + i)):
                        codes.add(code)

            threads = [threading.Thread(target=fill, args=(n,)) for n in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            check(codes <= {1213}, f"errors {codes}")
            check_equal(fetch(setup, "SELECT COUNT(*) FROM ser.doctor WHERE shift = 90"), [10], "rows")

        with t.case("a statement with triggers is one transaction"):
            for statement in [
                "CREATE TABLE ser.told (id INT PRIMARY KEY)", "CREATE TABLE ser.teller (id INT PRIMARY KEY, n INT)",
                "CREATE TRIGGER ser.tells AFTER INSERT ON ser.teller FOR EACH ROW INSERT INTO ser.told VALUES (NEW.n)",
            ]:
                setup.execute(statement)
            c = connect()
            check_equal(code_of(c.cursor().execute, "INSERT INTO teller VALUES (1, 1), (2, 2), (3, 2)"), 1062, "the trigger's duplicate")
            check_equal(fetch(c.cursor(), "SELECT (SELECT COUNT(*) FROM teller), (SELECT COUNT(*) FROM told)"), [(0, 0)], "rows of a statement that failed")
            c.cursor().execute("INSERT INTO teller VALUES (1, 1), (2, 2), (3, 3)")
            check_equal(fetch(c.cursor(), "SELECT (SELECT COUNT(*) FROM teller), (SELECT COUNT(*) FROM told)"), [(3, 3)], "rows")

        with t.case("what ends a transaction without a word of it is refused, too"):
            a, b = connect(), connect()
            for ending in ("ALTER TABLE counter COMMENT = 'x'", "SET autocommit = 1", "BEGIN"):
                a.cursor().execute("SET autocommit = 0")
                fetch(a.cursor(), "SELECT * FROM counter WHERE id = 2")
                a.cursor().execute("UPDATE counter SET n = 0 WHERE id = 3")
                b.cursor().execute("UPDATE counter SET n = n + 1 WHERE id = 2")
                check_equal(code_of(a.cursor().execute, ending), 1213, ending)
                a.cursor().execute("ROLLBACK")
                a.cursor().execute("SET autocommit = 1")

        with t.case("a history of lists is strictly serializable while data nodes are killed"):
            stop = threading.Event()
            writers = [Lists(n, connect, stop) for n in range(WRITERS)]
            for writer in writers:
                writer.start()
            end = time.monotonic() + SECONDS
            kills = 0
            while time.monotonic() < end:
                time.sleep(2)
                node = cluster.data_ids()[kills % 2]
                cluster.kill(node)
                cluster.wait_down(node)
                cluster.restart(node)
                cluster.wait_up(node)
                kills += 1
            stop.set()
            for writer in writers:
                writer.join()
            check_equal([error for writer in writers for error in writer.errors], [], "errors")
            reader, last = Lists(WRITERS, connect, stop), []
            for key in range(LISTS):
                last.append(["r", key, fetch(setup, "SELECT v FROM ser.item WHERE k = %s ORDER BY n", key)])
            reader.tell("invoke", [["r", key, None] for key in range(LISTS)])
            reader.tell("ok", last)
            counts = {kind: sum(writer.counts[kind] for writer in writers) for kind in ("ok", "fail", "info")}
            t.say(f"{counts['ok']} transactions committed, {counts['fail']} rolled back, {counts['info']} unknown, {kills} kills")
            check(counts["ok"] > 100 and counts["fail"] > 0 and kills > 1, "the history is too short to say anything")
            path = t.directory / "history.edn"
            path.write_text("\n".join(Lists.events) + "\n")
            t.say(run([BINARY, "check-history", str(path), "--level", "strict-serializable"], seconds=120)[1].strip().splitlines()[-1])


if __name__ == "__main__":
    scenario_main(main)
