"""Stored procedures on two SQL nodes: made on one and called on the other, by drivers, while data nodes die and come back; ended by KILL; dumped and loaded again by the stock tool."""

import threading

import mysql.connector
import pymysql

from lib.asking import ask, connect, refused
from lib.cluster import Cluster
from lib.harness import FULL, check, check_equal, run, scenario_main, wait_until
from lib.mariadb import dump, load

LIMIT_SECONDS = (120, 300)
SIDE_BY_SIDE = True
ROUNDS = 50 if FULL else 8
ACCOUNTS = 10
# The outcome of a commit, where the one that could tell joined a moment ago.
UNKNOWN = 1180

SCHEMA = f"""
CREATE DATABASE bank; USE bank;
CREATE TABLE account (id INT PRIMARY KEY, balance INT NOT NULL CHECK (balance >= 0));
CREATE TABLE moved (id BIGINT AUTO_INCREMENT PRIMARY KEY, source INT, target INT, amount INT);
DELIMITER $$
CREATE PROCEDURE fill(n INT)
BEGIN
  DECLARE i INT DEFAULT 1; -- accounts
  WHILE i <= n DO
    INSERT INTO account VALUES (i, 100);
    SET i = i + 1;
  END WHILE;
END$$
CREATE PROCEDURE move_money(source INT, target INT, amount INT, OUT said VARCHAR(20))
    COMMENT 'tries again what a lost node, or another one, has rolled back'
BEGIN
  DECLARE tries INT DEFAULT 0;
  again: LOOP
    BEGIN
      DECLARE EXIT HANDLER FOR 1213, 1205 BEGIN ROLLBACK; SET tries = tries + 1; END;
      DECLARE EXIT HANDLER FOR 3819 BEGIN ROLLBACK; SET said = 'too poor'; END;
      SET said = NULL;
      START TRANSACTION;
      UPDATE account SET balance = balance - amount WHERE id = source;
      UPDATE account SET balance = balance + amount WHERE id = target;
      INSERT INTO moved (source, target, amount) VALUES (source, target, amount);
      COMMIT;
      SET said = 'moved';
    END;
    IF said IS NOT NULL OR tries > 20 THEN LEAVE again; END IF;
  END LOOP;
END$$
CREATE PROCEDURE report()
BEGIN
  DECLARE done INT DEFAULT 0;
  DECLARE who, has, total INT DEFAULT 0;
  DECLARE all_of CURSOR FOR SELECT id, balance FROM account ORDER BY id;
  DECLARE CONTINUE HANDLER FOR NOT FOUND SET done = 1;
  OPEN all_of;
  each_one: LOOP
    FETCH all_of INTO who, has;
    IF done THEN LEAVE each_one; END IF;
    SET total = total + has;
  END LOOP;
  CLOSE all_of;
  SELECT id, balance FROM account ORDER BY id;
  SELECT total;
END$$
CREATE PROCEDURE forever() BEGIN WHILE TRUE DO SET @x = 1; END WHILE; END$$
CREATE PROCEDURE square(INOUT n INT, OUT said VARCHAR(20)) BEGIN SET n = n * n; SET said = CONCAT('it''s ', n); SELECT n, said; END$$
DELIMITER ;
CALL fill({ACCOUNTS});
"""


def two_nodes(t, first, second):
    with t.case("a procedure made through one SQL node is called on the other at once, and gone there when it was dropped"):
        for n in range(ROUNDS):
            ask(first, f"CREATE PROCEDURE bank.p() SELECT {n}")
            check_equal(ask(second, "CALL bank.p()"), ((n,),), f"procedure {n}")
            refused(second, "CREATE PROCEDURE bank.p() SELECT 0", 1304)
            ask(second, "DROP PROCEDURE bank.p")
            refused(first, "CALL bank.p()", 1305)


def drivers(t, cluster):
    host, port = cluster.sql
    with t.case("PyMySQL: callproc, its results and what went out"):
        with pymysql.connect(host=host, port=port, user="root", database="bank") as connection, connection.cursor() as cursor:
            cursor.callproc("square", (7, None))
            check_equal(cursor.fetchall(), ((49, "it's 49"),), "rows")
            while cursor.nextset():
                pass
            cursor.execute("SELECT @_square_0, @_square_1")
            check_equal(cursor.fetchall(), ((49, "it's 49"),), "out")
            cursor.callproc("report")
            sizes = [len(cursor.fetchall())]
            while cursor.nextset():
                sizes.append(len(cursor.fetchall()))
            check_equal(sizes[:2], [ACCOUNTS, 1], "results")
    with t.case("mysql-connector: callproc, and a prepared CALL"):
        connection = mysql.connector.connect(host=host, port=port, user="root", database="bank", use_pure=True)
        try:
            cursor = connection.cursor()
            check_equal(tuple(cursor.callproc("square", (5, None))), (25, "it's 25"), "out")
            check_equal([result.fetchall() for result in cursor.stored_results()], [[(25, "it's 25")]], "rows")
            cursor.close()
            cursor = connection.cursor(prepared=True)
            cursor.execute("CALL fill(?)", (0,))
            cursor.close()
        finally:
            connection.close()


class Mover(threading.Thread):
    def __init__(self, connection, which):
        super().__init__(daemon=True)
        self.connection, self.which = connection, which
        self.stopping, self.moved, self.unknown, self.wrong = threading.Event(), 0, 0, None

    def run(self):
        try:
            n = self.which
            while not self.stopping.is_set():
                n += 7
                source, target = 1 + n % ACCOUNTS, 1 + (n * 3 + 1) % ACCOUNTS
                try:
                    ask(self.connection, f"CALL bank.move_money({source}, {target}, {n % 13}, @said)")
                    (said,), = ask(self.connection, "SELECT @said")
                except pymysql.MySQLError as error:
                    if error.args[0] != UNKNOWN:
                        raise
                    self.unknown += 1
                    ask(self.connection, "ROLLBACK")
                    continue
                check(said in ("moved", "too poor"), f"a transfer says {said!r}")
                self.moved += said == "moved"
        except Exception as error:  # noqa: BLE001 - told by whoever joins
            self.wrong = error

    def goes_on(self):
        moved = self.moved
        wait_until(lambda: self.wrong or self.moved > moved, 20, f"mover {self.which} goes on")
        check(self.wrong is None, f"mover {self.which}: {self.wrong!r}")


def under_fire(t, cluster, first):
    movers = [Mover(connect(cluster, which), which) for which in (0, 1)]
    with t.case("transfers by a procedure that tries again: no error and no money lost while data nodes are killed and come back"):
        for mover in movers:
            mover.start()
        for node in (1, 2):
            for step in (lambda: cluster.kill(node), lambda: (cluster.wait_down(node), cluster.restart(node), cluster.wait_up(node)), lambda: None):
                for mover in movers:
                    mover.goes_on()
                step()
        for mover in movers:
            mover.goes_on()
            mover.stopping.set()
            mover.join(30)
            check(not mover.is_alive() and mover.wrong is None, f"mover {mover.which}: {mover.wrong!r}")
        (total,), = ask(first, "SELECT SUM(balance) FROM bank.account")
        check_equal(total, 100 * ACCOUNTS, "money")
        (found,), = ask(first, "SELECT COUNT(*) FROM bank.moved")
        done, unknown = sum(mover.moved for mover in movers), sum(mover.unknown for mover in movers)
        check(done <= found <= done + unknown, f"{found} transfers are there, {done} were told, of {unknown} nobody knew")
        t.say(f"{done} transfers")


def killed(t, cluster, first):
    with t.case("KILL QUERY ends an endless procedure, beside which others of its SQL node are answered"):
        looping = connect(cluster, 0)
        (number,), = ask(looping, "SELECT CONNECTION_ID()")
        outcome = []

        def loop():
            try:
                ask(looping, "CALL bank.forever()")
            except pymysql.MySQLError as error:
                outcome.append(error.args[0])

        thread = threading.Thread(target=loop, daemon=True)
        thread.start()
        wait_until(lambda: ask(first, f"SELECT info FROM information_schema.processlist WHERE id = {number} AND command = 'Query'"), 10, "the loop runs")
        for _ in range(100):
            check_equal(ask(first, "SELECT balance IS NOT NULL FROM bank.account WHERE id = 1"), ((1,),), "a row beside the loop")
        ask(first, f"KILL QUERY {number}")
        thread.join(10)
        check_equal(outcome, [1317], "how the call ended")
        check_equal(ask(looping, "SELECT 1"), ((1,),), "its session")


def dumped(t, cluster, first):
    with t.case("a dump with procedures is loaded again"):
        text = dump(cluster, "bank", "--routines")
        ask(first, "CREATE DATABASE copy")
        load(cluster, text, database="copy")
        names = ask(first, "SELECT routine_name FROM information_schema.routines WHERE routine_schema = 'bank' ORDER BY 1")
        check_equal(names, ask(first, "SELECT routine_name FROM information_schema.routines WHERE routine_schema = 'copy' ORDER BY 1"), "procedures")
        for name, in names:
            check_equal(ask(first, f"SHOW CREATE PROCEDURE copy.{name}"), ask(first, f"SHOW CREATE PROCEDURE bank.{name}"), name)
        ask(first, "CALL copy.move_money(1, 2, 1, @said)")
        check_equal(ask(first, "SELECT @said"), (("moved",),), "a transfer in the copy")
        ask(first, "DROP DATABASE copy")
        refused(first, "CALL copy.fill(1)", 1305)


def main(t):
    with Cluster(t, sql_nodes=2) as cluster:
        load(cluster, SCHEMA)
        first, second = connect(cluster, 0), connect(cluster, 1)
        two_nodes(t, first, second)
        drivers(t, cluster)
        under_fire(t, cluster, first)
        killed(t, cluster, first)
        dumped(t, cluster, first)


if __name__ == "__main__":
    scenario_main(main)
