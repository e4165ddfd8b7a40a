"""The MySQL protocol as no driver shows it: cursors, compressed and long packets, attributes, tracking, resets, idle connections, hostile bytes. Answers of MySQL 9.7.4 stand here
byte by byte."""

import os
import random
import resource
import shutil
import struct
import zlib
from decimal import Decimal

import mysql.connector
import pymysql
import zstandard
from mysql.connector import FieldFlag

from lib import wire
from lib.cluster import Cluster
from lib.harness import CLIENTS, check, check_equal, rss_kib, run, scenario_main
from lib.mariadb import batch
from lib.wire import BASE, DEPRECATE_EOF, Client, error

LIMIT_SECONDS = (300, 600)
SIDE_BY_SIDE = True
ROWS = 20_000
ALL_BYTES, CURSOR_BYTES = 1 << 30, 256 << 20  # of all cursors, of one
DEFINITION = b"\x03def\x01w\x01t\x01t\x01a\x01a\x0c?\0\x0b\0\0\0\x03"


def execute(statement, flags=0, body=b""):
    return b"\x17" + struct.pack("<IBI", statement, flags, 1) + body


def fetch(statement, rows):
    return b"\x1c" + struct.pack("<II", statement, rows)


def row(number):
    return b"\0\0" + struct.pack("<i", number)


def end(status, capabilities, warnings=0):
    fields = (status, warnings) if capabilities & DEPRECATE_EOF else (warnings, status)
    return b"\xfe" + (b"\0\0" if capabilities & DEPRECATE_EOF else b"") + struct.pack("<HH", *fields)


def refused(client, payload, number, what):
    (found,) = client.command(payload, 1)
    check(found[0] == 0xFF, f"{what}: {found!r}")
    check_equal(error(found)[0], number, what)
    return error(found)[2]


def cursors(t, where):
    for capabilities in (BASE, BASE | DEPRECATE_EOF):
        name = "without EOF" if capabilities & DEPRECATE_EOF else "with EOF"
        opened, last = end(0x42, capabilities), end(0x82, capabilities)
        with Client(where, capabilities, database="w") as client:
            statement = client.prepare("SELECT a FROM t ORDER BY a")
            with t.case(f"a cursor, byte by byte, {name}"):
                first = client.command(execute(statement, 1), 3)
                check_equal((first[0], first[1][:len(DEFINITION)], first[2]), (b"\x01", DEFINITION, opened), "opened")
                check_equal(client.command(fetch(statement, 2), 3), [row(1), row(2), opened], "two rows")
                check_equal(client.command(fetch(statement, 0), 1), [opened], "no rows")
                check_equal(client.command(fetch(statement, 1), 2), [row(3), opened], "as many as there are")
                check_equal(client.command(fetch(statement, 1), 1), [last], "the end")
                text = refused(client, fetch(statement, 1), 1421, "behind the end")
                check_equal(text, f"The statement ({statement}) has no open cursor.", "text")
            with t.case(f"what closes a cursor, and what does not, {name}"):
                for closes in (b"\x1a" + struct.pack("<I", statement), execute(statement), execute(statement, 2)):
                    client.command(execute(statement, 1), 3)
                    client.send(closes)
                    client.result()
                    refused(client, fetch(statement, 1), 1421, f"after {closes!r}")
                client.command(execute(statement, 1), 3)
                client.command(execute(statement, 1), 3)
                for other in ("BEGIN", "INSERT INTO t VALUES (77)", "ROLLBACK", "DELETE FROM t WHERE a = 2", "SELECT 1"):
                    check(client.query(other)[0][0] != 0xFF, other)
                check_equal(client.command(fetch(statement, 9), 4), [row(1), row(2), row(3), last], "rows of the moment of the execution")
                client.query("INSERT INTO t VALUES (2)")
                client.command(execute(statement, 1), 3)
                client.query("BEGIN")
                check_equal(client.command(fetch(statement, 1), 2), [row(1), end(0x43, capabilities)], "within a transaction")
                client.query("COMMIT")
                client.command(b"\x1f", 1)
                refused(client, fetch(statement, 1), 1243, "after COM_RESET_CONNECTION")
            client.query("USE w")
            statement = client.prepare("SELECT a FROM t ORDER BY a")
            with t.case(f"statements that have no cursor, {name}"):
                text = refused(client, fetch(99, 1), 1243, "no statement")
                check_equal(text, "Unknown prepared statement handler (99) given to mysql_stmt_precheck", "text")
                refused(client, execute(99, 1), 1243, "no statement")
                refused(client, b"\x1c\x01\0", 1835, "too short")
                refused(client, fetch(statement, 1), 1421, "not executed")
                insert = client.prepare("INSERT INTO t VALUES (100), (101)")
                check_equal(client.command(execute(insert, 1), 1)[0][:3], b"\0\x02\0", "rows inserted")
                refused(client, fetch(insert, 1), 1421, "an INSERT")
                text = refused(client, execute(client.prepare("SELECT a INTO @x FROM t LIMIT 1"), 1), 1323, "INTO")
                check_equal(text, "Cursor SELECT must not have INTO", "text")
                warns = client.prepare("SELECT 1/0")
                check_equal(client.command(execute(warns, 1), 3)[2], end(0x42, capabilities, 1), "warnings of the execution")
                check_equal(client.command(fetch(warns, 5), 2), [b"\0\x04", last], "no warnings of the rows")
                none = client.prepare("SELECT a FROM t WHERE a < 0")
                check_equal(client.command(execute(none, 1), 3)[2], opened, "opened without rows")
                check_equal(client.command(fetch(none, 1), 1), [last], "no rows")
                fails = client.prepare("SELECT 9223372036854775807 + a FROM t")
                refused(client, execute(fails, 1), 1690, "a statement that fails")
                refused(client, fetch(fails, 1), 1421, "a statement that failed")
                show = client.prepare("SHOW TABLES")
                client.command(execute(show, 1), 3)
                check_equal(client.command(fetch(show, 5), 3)[-1], last, "SHOW")
                client.query("DELETE FROM t WHERE a >= 100")


def cursors_in_memory(t, where):
    with Client(where, BASE | DEPRECATE_EOF, database="w") as client:
        with t.case("a long cursor: rows of several pieces, and rows of several packets"):
            rows = client.prepare("SELECT id, REPEAT('x', 100) FROM held ORDER BY id")
            client.command(execute(rows, 1), 4)
            got = 0
            while True:
                client.send(fetch(rows, 1500))
                step = []
                while not step or step[-1][0] != 0xFE:
                    step.append(client.packet())
                check_equal([struct.unpack_from("<i", r, 2)[0] for r in step[:-1]], list(range(got + 1, got + len(step))), "ids")
                got += len(step) - 1
                if struct.unpack_from("<H", step[-1], 3)[0] & 0x80:
                    break
            check_equal(got, ROWS, "rows")
            long = client.prepare("SELECT id, REPEAT('y', 17000000) FROM held WHERE id <= 3 ORDER BY id")
            client.command(execute(long, 1), 4)
            for number in (1, 2, 3):
                found, _ = client.command(fetch(long, 1), 2)
                check_equal((struct.unpack_from("<i", found, 2)[0], len(found), found[-1]), (number, 2 + 4 + 9 + 17_000_000, ord("y")), "a long row")
            check_equal(client.command(fetch(long, 1), 1), [end(0x82, client.capabilities)], "the end")
        with t.case("a cursor holds at most 256 MiB, all of a server 1 GiB; who closes one makes room"):
            wide = client.prepare("SELECT REPEAT('z', 60000000) FROM held WHERE id <= 5")
            text = refused(client, execute(wide, 1), 3170, "too much for a cursor")
            check_equal(text, f"Memory capacity of {CURSOR_BYTES} bytes for 'rows of a cursor' exceeded. Fetch fewer rows, or without a cursor", "text")
            refused(client, fetch(wide, 1), 1421, "a cursor that was refused")
            fits = [client.prepare("SELECT REPEAT('z', 60000000) FROM held WHERE id <= 4") for _ in range(5)]
            for statement in fits[:4]:
                client.command(execute(statement, 1), 3)
            refused(client, execute(fits[4], 1), 3170, "too much for all cursors")
            client.send(b"\x19" + struct.pack("<I", fits[0]))
            client.command(execute(fits[4], 1), 3)
            check_equal(len(client.command(fetch(fits[4], 1), 2)[0]), 2 + 9 + 60_000_000, "a row")
        client.close()
        with t.case("a client that goes leaves no rows behind"):
            with Client(where, BASE | DEPRECATE_EOF, database="w") as other:
                statements = [other.prepare("SELECT REPEAT('z', 60000000) FROM held WHERE id <= 4") for _ in range(4)]
                for statement in statements:
                    other.command(execute(statement, 1), 3)


def compressed(t, where):
    for algorithm, level in (("zlib", 6), ("zstd", 3), ("zstd", 22)):
        options = {"compress": algorithm, "level": level}
        with t.case(f"{algorithm} {level}: what it says of itself, short and long statements and answers"):
            with Client(where, **options) as client:
                found = [r for r in client.query("SHOW STATUS LIKE 'Compression%'") if not r.startswith(b"\x03def")]
                wanted = [(b"Compression", b"ON"), (b"Compression_algorithm", algorithm.encode()), (b"Compression_level", str(level).encode())]
                check_equal(found[2:-1], [wire.text(name) + wire.text(value) for name, value in wanted], "status")
                before = client.received
                check_equal(client.query("SELECT REPEAT('x', 5000000)")[3], wire.text(b"x" * 5_000_000), "an answer")
                check(client.received - before < 50_000, f"{client.received - before} bytes for five million the same")
                noise = random.Random(1).randbytes(9_000_000).hex()
                before = client.sent
                check_equal(client.query(f"SELECT '{noise}'")[3], wire.text(noise.encode()), "noise both ways")
                check(client.sent - before < len(noise) * 0.7, "a statement that is compressed")
                check_equal(client.query("SELECT 1")[3], b"\x011", "an answer that is not")
                for size in (1, 48, 49, 50, 51, 1000):
                    check_equal(client.query(f"SELECT '{'y' * size}'")[3], wire.text(b"y" * size), f"{size} bytes")
        with t.case(f"{algorithm} {level}: packets cut anywhere, several in one, one in several"):
            with Client(where, **options) as client:
                whole = wire.framed(b"\x03SELECT 11") + wire.framed(b"\x03SELECT 22") + wire.framed(b"\x03SELECT 'z'")
                for cut in (*range(1, len(whole)), len(whole)):
                    parts = [whole[:cut], whole[cut:]]
                    client.send_raw(b"".join(client.wrapped(part, i) for i, part in enumerate(parts) if part))
                    check_equal([client.result()[3] for _ in range(3)], [b"\x0211", b"\x0222", b"\x01z"], f"cut at {cut}")
                client.send_raw(client.wrapped(b"", 0) * 3 + client.wrapped(wire.framed(b"\x0e"), 3))
                check_equal(client.packet()[0], 0, "empty ones before a ping")
        with t.case(f"{algorithm} {level}: a cursor, a reset, an error, another user"):
            with Client(where, database="w", **options) as client:
                statement = client.prepare("SELECT a FROM t ORDER BY a")
                client.command(execute(statement, 1), 3)
                check_equal(client.command(fetch(statement, 2), 3)[:2], [row(1), row(2)], "rows")
                refused(client, b"\x03SELEKT", 1064, "an error")
                check_equal(client.command(b"\x1f", 1)[0][0], 0, "reset")
                client.send(b"\x11root\0\0w\0\xff\0caching_sha2_password\0")
                answer = client.packet()
                if answer[0] == 0xFE:
                    client.send(b"", client.sequence + 1)
                    answer = client.packet()
                check_equal(answer[0], 0, "another user")
                check_equal(client.query("SELECT DATABASE()")[3], b"\x01w", "its database")
    with t.case("hostile compressed packets: error 1157 or a closed connection, and nobody else notices"):
        packed = zlib.compress(wire.framed(b"\x03SELECT '" + b"a" * 1000 + b"'"))
        size = 4 + 1 + 8 + 1000 + 1

        def header(length, declared):
            return struct.pack("<I", length)[:3] + b"\0" + struct.pack("<I", declared)[:3]

        bomb = zlib.compress(b"\0" * (64 << 20), 9)
        for data in (header(len(packed), size - 1) + packed, header(len(packed), size + 1) + packed, header(len(packed), 0xFFFFFF) + packed,
                     header(20, size) + b"\x78" * 20, header(len(bomb), 0xFFFFFF) + bomb, header(len(bomb), 100) + bomb, header(0, 5)):
            with Client(where, compress="zlib") as client:
                client.send_raw(data)
                check_equal(error(client.packet())[:2], (1157, "08S01"), f"{data[:20]!r}")
                check(wire.wait_for_end(client), "it goes on")
        wide = zstandard.ZstdCompressor(compression_params=zstandard.ZstdCompressionParameters(window_log=27, write_content_size=False))
        stream = wide.compressobj()
        wide = stream.compress(b"\0" * 100) + stream.flush()
        bomb = zstandard.compress(b"\0" * (64 << 20))
        for data in (header(len(wide), 100) + wide, header(len(bomb), 0xFFFFFF) + bomb, header(len(bomb), 1) + bomb, header(30, 50) + b"\x28\xb5\x2f\xfd" * 7 + b"ab"):
            with Client(where, compress="zstd") as client:
                client.send_raw(data)
                check_equal(error(client.packet())[:2], (1157, "08S01"), f"{data[:20]!r}")
        with Client(where, compress="zlib") as client:
            client.send_raw(header(len(packed), size) + packed)
            check_equal(client.result()[3], wire.text(b"a" * 1000), "the packet as it should be")
    with t.case("algorithms and levels that are not taken"):
        for level, number in ((0, 3923), (23, 3923), (255, 3923)):
            with Client(where, compress="zstd", level=level) as client:
                check_equal(error(client.answer)[0], number, f"level {level}")
        with Client(where) as admin:
            check(admin.offered & wire.COMPRESS and admin.offered & wire.ZSTD, "both are offered")
            check_equal(admin.query("SET GLOBAL protocol_compression_algorithms = 'zlib'")[0][0], 0, "SET")
            with Client(where) as client:
                check_equal(error(client.answer), (3922, "HY000", "Invalid compression algorithm 'uncompressed'."), "uncompressed")
                check(not client.offered & wire.ZSTD, "zstd is offered")
            with Client(where, compress="zlib") as client:
                check_equal(client.query("SELECT @@protocol_compression_algorithms")[3], b"\x04zlib", "with zlib")
                client.query("SET GLOBAL protocol_compression_algorithms = DEFAULT")
            with Client(where) as client:
                check_equal(client.answer[0], 0, "as ever")


def stock_clients(t, host, port):
    with t.case("the stock client compresses, with and without TLS"):
        ask = "SHOW STATUS WHERE Variable_name IN ('Compression', 'Ssl_version')"
        for options, wanted in ((["--compress"], ["Compression", "ON", "Ssl_version", "TLSv1.3"]), (["--compress", "--skip-ssl"], ["Compression", "ON", "Ssl_version"])):
            _, text = run(["mariadb", "--no-defaults", "-uroot", f"-h{host}", f"-P{port}", "-N", *options, "-e", f"{ask}; SELECT LENGTH(REPEAT('ab', 3000000))"])
            check_equal(text.split(), [*wanted, "6000000"], f"{options}")
    with t.case("the stock client sends a file in compressed packets"):
        file = t.directory / "rows.tsv"
        file.write_text("".join(f"{i}\trow {i}\n" for i in range(1, 50_001)))
        load = f"SET GLOBAL local_infile = ON; CREATE TABLE w.loaded (id INT PRIMARY KEY, v VARCHAR(20)); LOAD DATA LOCAL INFILE '{file}' INTO TABLE w.loaded"
        _, text = run(["mariadb", "--no-defaults", "-uroot", f"-h{host}", f"-P{port}", "-N", "--compress", "--local-infile=1", "-e",
                       f"{load}; SELECT COUNT(*), MAX(id) FROM w.loaded WHERE v = CONCAT('row ', id); SET GLOBAL local_infile = OFF"])
        check_equal(text.split(), ["50000", "50000"], "rows")
    with t.case("mysql-connector-python: compressed packets, long values both ways"):
        for tls in (True, False):
            connection = mysql.connector.connect(host=host, port=port, user="root", use_pure=True, ssl_disabled=tls, compress=True)
            cursor = connection.cursor()
            cursor.execute("SHOW STATUS LIKE 'Compression'")
            check_equal(cursor.fetchall(), [("Compression", "ON")], "status")
            text = "größer " * 400_000
            cursor.execute("SELECT %s, REPEAT('q', 17000000)", (text,))
            (found,) = cursor.fetchall()
            check_equal((found[0] == text, len(found[1])), (True, 17_000_000), "values")
            prepared = connection.cursor(prepared=True)
            prepared.execute("SELECT a FROM w.t WHERE a > %s ORDER BY a", (1,))
            check_equal(prepared.fetchall(), [(2,), (3,)], "a prepared statement")
            connection.cmd_reset_connection()
            connection.close()
    with t.case("mysql-connector-python: columns with ZEROFILL, as numbers and as texts"):
        connection = mysql.connector.connect(host=host, port=port, user="root", use_pure=True, autocommit=True)
        for prepared in (False, True):
            cursor = connection.cursor(prepared=prepared)
            cursor.execute("DROP TABLE IF EXISTS w.filled")
            cursor.execute("CREATE TABLE w.filled (a INT(5) ZEROFILL, d DECIMAL(6,2) ZEROFILL, f DOUBLE(8,2) ZEROFILL, n BIGINT ZEROFILL)")
            cursor.execute("INSERT INTO w.filled VALUES (%s, %s, %s, %s)", (42, "7.5", 2.5, None))
            cursor.execute("SELECT a, d, f, n, CONCAT(a, ' ', d, ' ', f) FROM w.filled WHERE a = %s", (42,))
            check_equal(cursor.fetchall(), [(42, Decimal("7.50"), 2.5, None, "00042 0007.50 00002.50")], f"values, prepared {prepared}")
            flags = [column[7] & (FieldFlag.ZEROFILL | FieldFlag.UNSIGNED) for column in cursor.description]
            check_equal(flags, [FieldFlag.ZEROFILL | FieldFlag.UNSIGNED] * 4 + [0], "flags")
        connection.close()
        with Client((host, port), database="w") as client:
            check_equal(client.query("SELECT * FROM filled")[-2], wire.text(b"00042") + wire.text(b"0007.50") + wire.text(b"00002.50") + b"\xfb", "texts")
            client.send(execute(client.prepare("SELECT * FROM filled")))
            numbers = struct.pack("<i", 42) + wire.text(b"0007.50") + struct.pack("<d", 2.5)
            check_equal(client.result()[-2], b"\0\x20" + numbers, "numbers, and the text of a decimal")
    with t.case("Connector/C: a cursor in steps of 1, 7 and 1000 rows, compressed and not"):
        for steps in ((100, 1), (1000, 7), (2500, 1000)):
            for more in ([], ["zlib"]):
                _, text = run([CLIENTS / "cursor-client", host, port, *steps, *more], ok=False)
                check("ok a cursor" in text and "FAIL" not in text, text)
                batch("REPLACE INTO app.held VALUES (1, 'row 1')", host, port)


def long_packets(t, where, host, port):
    with t.case("statements and values of 16 MiB and more, both ways, up to max_allowed_packet"):
        for size in (wire.PART - 1, wire.PART, wire.PART + 1, 2 * wire.PART, 40_000_000):
            with Client(where) as client:
                head = b"\x03SELECT LENGTH('"
                client.send(head + b"x" * (size - len(head) - 2) + b"')")
                check_equal(client.result()[3], wire.text(str(size - len(head) - 2).encode()), f"a statement of {size} bytes")
                client.send(f"\x03SELECT REPEAT('x', {size - 4})".encode())
                check_equal(len(client.result()[3]), len(wire.lenenc(size - 4)) + size - 4, f"an answer of {size} bytes")
        with Client(where) as client:
            longest = (64 << 20) - 1 - 18
            client.send(b"\x03SELECT LENGTH('" + b"x" * longest + b"')")
            check_equal(client.result()[3], wire.text(str(longest).encode()), "the longest statement")
            try:
                client.send(b"\x03SELECT LENGTH('" + b"x" * (longest + 1) + b"')")
                check_equal(error(client.packet())[0], 1153, "a longer one")
            except OSError:
                pass  # it may be gone before all of it is sent
    with t.case("a driver stores and reads long values"):
        connection = pymysql.connect(host=host, port=port, user="root", database="w", max_allowed_packet=64 << 20)
        with connection.cursor() as cursor:
            cursor.execute("SELECT %s", ("z" * 30_000_000,))
            check_equal(len(cursor.fetchone()[0]), 30_000_000, "bytes")
        connection.close()


def attributed(sql, *pairs, flags=1):
    """A query with attributes that are texts."""
    count = len(pairs)
    types = b"".join(b"\xfd\0" + wire.text(name) for name, _ in pairs)
    values = b"".join(wire.text(value) for _, value in pairs)
    return b"\x03" + bytes([count, 1]) + (bytes((count + 7) // 8) + bytes([flags]) + types + values if count else b"") + sql


def attributes(t, where):
    ask = b"SELECT mysql_query_attribute_string('n1'), mysql_query_attribute_string('N2'), mysql_query_attribute_string('n3')"
    with Client(where, BASE | wire.QUERY_ATTRIBUTES) as client:
        def told(payload, rows=1):
            client.send(payload)
            return client.result()[-1 - rows]

        with t.case("query attributes: of a query, of all its statements, and of no other"):
            check_equal(told(attributed(ask, (b"n1", b"one"), (b"n2", b"two"))), b"\x03one\x03two\xfb", "told")
            check_equal(told(attributed(ask)), b"\xfb\xfb\xfb", "none")
            client.send(attributed(ask + b"; " + ask, (b"n3", b"x")))
            check_equal([client.result()[-2] for _ in range(2)], [b"\xfb\xfb\x01x"] * 2, "two statements")
            check_equal(told(attributed(ask, (b"n1", b"a"), (b"N1", b"b"))), b"\x01a\xfb\xfb", "the first of a name")
            typed = [(8, b"\xff" * 8, b"-1"), (1, b"\xff", b"-1"), (5, struct.pack("<d", 1e20), b"1e20"), (246, wire.text(b"1.50"), b"1.50"),
                     (4, struct.pack("<f", 0.1), b"0.10000000149011612"), (10, b"\x04\xe8\x07\x02\x1d", b"2024-02-29"),
                     (12, b"\x07\xe8\x07\x02\x1d\x01\x02\x03", b"2024-02-29 01:02:03.000000"), (11, b"\x08\x01\x02\0\0\0\x03\x04\x05", b"-51:04:05.000000")]
            for kind, value, wanted in typed:
                payload = b"\x03\x01\x01\0\x01" + bytes([kind, 0]) + wire.text(b"n1") + value + b"SELECT mysql_query_attribute_string('n1')"
                check_equal(told(payload), wire.text(wanted), f"type {kind}")
            null = b"\x03\x01\x01\x01\x01\xfd\0" + wire.text(b"n1") + b"SELECT mysql_query_attribute_string('n1')"
            check_equal(told(null), b"\xfb", "NULL")
        with t.case("query attributes: of a prepared statement, behind its parameters"):
            statement = client.prepare("SELECT ?, mysql_query_attribute_string('n1')")
            five, named = struct.pack("<q", 5), wire.text(b"") + b"\xfd\0" + wire.text(b"n1")
            for flags in (0, 8):
                client.send(execute(statement, flags, b"\x02\0\x01\x08\0" + named + five + wire.text(b"xyz")))
                check_equal(client.result()[-2], b"\0\0" + five + wire.text(b"xyz"), "with one")
            client.command(execute(statement, 9, b"\x02\0\x01\x08\0" + named + five + wire.text(b"xyz")), 4)
            check_equal(client.command(fetch(statement, 5), 2)[0], b"\0\0" + five + wire.text(b"xyz"), "by a cursor")
            client.send(execute(statement, 8, b"\x01\0\0" + five))
            check_equal(client.result()[-2], b"\0\x08" + five, "with none, by the types of before")
            refused(client, execute(statement, 8, b"\0"), 1210, "no value for the parameter")
            refused(client, execute(statement, 8, b"\x02\0\0" + five + wire.text(b"x")), 1210, "an attribute without a type")
            none = client.prepare("SELECT 1")
            client.send(execute(none, 8, b"\0"))
            check_equal(client.result()[-2], b"\0\0" + struct.pack("<q", 1), "a statement without parameters")
    with t.case("query attributes that are none are refused"):
        for payload in (b"\x03\0\x02SELECT 1", b"\x03\x03\x01SELECT 1", attributed(b"SELECT 1", (b"a", b"b"), flags=0), b"\x03\xfe" + b"\xff" * 8 + b"\x01", b"\x03"):
            with Client(where, BASE | wire.QUERY_ATTRIBUTES) as client:
                refused(client, payload, 1835, repr(payload))
                check_equal(client.query("SELECT 1")[3], b"\x011", "the connection goes on")


def change(kind, data):
    return bytes([kind]) + wire.text(data)


def variable(name, value):
    return change(0, wire.text(name) + wire.text(value))


def tracking(t, where):
    schema, anything = change(1, b"\x01w"), change(2, b"\x011")
    names = [variable(n, b"utf8mb4") for n in (b"character_set_client", b"character_set_connection", b"character_set_results")]
    steps = [("SELECT 1", None), ("USE w", schema), ("USE w", schema), ("SET autocommit=0", variable(b"autocommit", b"OFF")),
             ("SET autocommit=0", variable(b"autocommit", b"OFF")), ("SET autocommit=1", variable(b"autocommit", b"ON")), ("SET NAMES utf8mb4", b"".join(names)),
             ("SET time_zone='+01:00'", variable(b"time_zone", b"+01:00")), ("SET @x=1", None), ("SET sql_mode=''", None), ("INSERT INTO t VALUES (500)", None),
             ("DELETE FROM t WHERE a = 500", None), ("SET session_track_state_change=1", None), ("SET @x=2", anything), ("USE w", schema + anything),
             ("SET sql_mode='', autocommit=1", variable(b"autocommit", b"ON") + anything), ("PREPARE s FROM 'SELECT 1'", anything), ("DEALLOCATE PREPARE s", anything),
             ("SET @@autocommit=1, autocommit=0, @x=1", variable(b"autocommit", b"OFF") + anything), ("SET character_set_connection='utf8mb4'", names[1] + anything),
             ("SET CHARACTER SET utf8mb4", b"".join(names) + anything), ("SET autocommit=DEFAULT", variable(b"autocommit", b"ON") + anything),
             ("SET session_track_state_change=0", None), ("SET session_track_schema=0", None), ("USE w", None), ("SET session_track_schema=1", None),
             ("SET session_track_system_variables='SQL_MODE , autocommit'", None),
             ("SET sql_mode='STRICT_ALL_TABLES',autocommit=1", variable(b"SQL_MODE", b"STRICT_ALL_TABLES") + variable(b"autocommit", b"ON")),
             ("SET session_track_system_variables='*'", variable(b"session_track_system_variables", b"*")), ("SET wait_timeout=100", variable(b"wait_timeout", b"100")),
             ("SET session_track_system_variables=''", None), ("SET autocommit=1", None), ("CREATE DATABASE gone", None), ("USE gone", change(1, b"\x04gone")),
             ("DROP DATABASE gone", change(1, b"\0")), ("USE w", schema)]
    for capabilities in (BASE, BASE | DEPRECATE_EOF):
        with t.case(f"session tracking, byte by byte, {'without' if capabilities & DEPRECATE_EOF else 'with'} EOF"):
            with Client(where, capabilities | wire.SESSION_TRACK, database="w") as client:
                check_equal(client.answer, b"\0\0\0\x02\x40\0\0\0" + wire.text(schema), "the login")
                for statement, told in steps:
                    last = client.query(statement)[-1]
                    check(last[0] in (0, 0xFE), f"{statement}: {last!r}")
                    flags = struct.unpack_from("<H", last, 3)[0] if last[0] == 0 or capabilities & DEPRECATE_EOF else 0
                    check_equal(bool(flags & 0x4000), told is not None, f"flag of {statement}")
                    if told is not None:
                        check(last.endswith(wire.text(told)), f"{statement}: {last!r} instead of {told!r}")
                check(client.command(b"\x02w", 1)[0].endswith(wire.text(schema)), "COM_INIT_DB")
                check_equal(client.command(b"\x1f", 1)[0], b"\0\0\0\x02\0\0\0", "COM_RESET_CONNECTION")
                check(client.query("SET autocommit=0")[0].endswith(variable(b"autocommit", b"OFF")), "as in a new session")
            with Client(where, capabilities, database="w") as client:
                check_equal(client.query("SET autocommit=0"), [b"\0\0\0\0\0\0\0"], "who did not ask")
    with t.case("session tracking: names that are none, and what is not tracked"):
        with Client(where, BASE | wire.SESSION_TRACK) as client:
            check_equal(client.answer, b"\0\0\0\x02\0\0\0", "a login without a database")
            check_equal(struct.unpack_from("<H", client.query("SET session_track_system_variables='foo,bar'")[0], 5)[0], 2, "warnings")
            for statement, number in (("SET session_track_system_variables='sql_mode,sql_mode'", 3026), ("SET session_track_gtids='X'", 1231),
                                      ("SET session_track_transaction_info='X'", 1231), ("SET session_track_schema=2", 1231),
                                      ("SET session_track_transaction_info='STATE'", 1235), ("SET session_track_transaction_info='CHARACTERISTICS'", 1235)):
                check_equal(error(client.query(statement)[0])[0], number, statement)


def fresh(t, where):
    with t.case("COM_RESET_CONNECTION and COM_CHANGE_USER leave nothing of a session but its database"):
        with Client(where, database="w") as client:
            for how in ("reset", "user"):
                statement = client.prepare("SELECT 1")
                for change in ("SET @x = 5, sql_mode = '', autocommit = 0, time_zone = '+03:00', transaction_isolation = 'REPEATABLE-READ', wait_timeout = 77",
                               "INSERT INTO t VALUES (900)", "PREPARE s FROM 'SELECT 1'", "SELECT GET_LOCK('l', 0)", "SET @@last_insert_id = 9"):
                    client.query(change)
                if how == "reset":
                    check_equal(client.command(b"\x1f", 1)[0], b"\0\0\0\x02\0\0\0", "reset")
                else:
                    client.send(b"\x11root\0\0w\0\xff\0caching_sha2_password\0")
                    answer = client.packet()
                    if answer[0] == 0xFE:
                        client.send(b"", client.sequence + 1)
                        answer = client.packet()
                    check_equal(answer, b"\0\0\0\x02\0\0\0", "another user")
                found = client.query("SELECT @x, @@sql_mode = '', @@autocommit, @@time_zone, @@transaction_isolation, @@wait_timeout, DATABASE(), IS_FREE_LOCK('l'), "
                                     "(SELECT COUNT(*) FROM t WHERE a = 900)")[-2]
                wanted = (None, b"0", b"1", b"SYSTEM", b"READ-COMMITTED", b"28800", b"w", b"1", b"0")
                check_equal(found, b"".join(b"\xfb" if v is None else wire.text(v) for v in wanted), how)
                refused(client, execute(statement), 1243, "a statement of before")
                check_equal(error(client.query("EXECUTE s")[0])[0], 1243, "a named statement of before")
    with t.case("wait_timeout ends this session with error 4031, and no other"):
        with Client(where) as client, Client(where) as other:
            check_equal(client.query("SET wait_timeout = 1")[0][0], 0, "SET")
            check_equal(error(client.packet())[0], 4031, "after a second")
            check(wire.wait_for_end(client), "it goes on")
            check_equal(other.query("SELECT 1")[3], b"\x011", "another connection")
            for value, wanted, warnings in (("0", b"1", 1), ("99999999", b"31536000", 1), ("5000", b"5000", 0)):
                check_equal(struct.unpack_from("<H", other.query(f"SET wait_timeout = {value}")[0], 5)[0], warnings, f"warnings of {value}")
                check_equal(other.query("SELECT @@wait_timeout")[3], wire.text(wanted), f"value of {value}")


IDLE, IDLE_TLS = 2000, 200
BYTES_MAX, BYTES_TLS_MAX = (300 << 20) // 10_000, (1 << 30) // 10_000


def sql_node_kib(cluster, port):
    """Memory of the process that listens there."""
    _, text = run(["ss", "-Hltnp", f"sport = :{port}"])
    pid = int(text.split("pid=")[1].split(",")[0])
    return rss_kib(pid)


def idle(t, cluster, where):
    host, port = where

    def cost(count, connect):
        warm = [connect() for _ in range(20)]
        before = sql_node_kib(cluster, port)
        held = [connect() for _ in range(count)]
        each = (sql_node_kib(cluster, port) - before) * 1024 / count
        for client in warm + held:
            client.close()
        return each

    def busy():
        client = Client(where, BASE | DEPRECATE_EOF, database="w")
        client.query("SELECT a FROM t ORDER BY a")
        return client

    with t.case(f"{IDLE_TLS} idle connections with TLS: 10,000 fit into 1 GiB"):
        def encrypted():
            connection = pymysql.connect(host=host, port=port, user="root", database="w", ssl={"check_hostname": False, "verify_mode": "none"})
            with connection.cursor() as cursor:
                cursor.execute("SELECT a FROM t ORDER BY a")
            return connection

        each = cost(IDLE_TLS, encrypted)
        t.say(f"{each:.0f} bytes per connection")
        check(each <= BYTES_TLS_MAX, f"{each:.0f} bytes per connection, more than {BYTES_TLS_MAX}")
    with t.case(f"{IDLE} idle connections that have asked something: 10,000 fit into 300 MiB"):
        each = cost(IDLE, busy)
        t.say(f"{each:.0f} bytes per connection")
        check(each <= BYTES_MAX, f"{each:.0f} bytes per connection, more than {BYTES_MAX}")


def main(t):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65_536), hard))
    with Cluster(t) as cluster:
        host, port = cluster.sql
        where = (host, port)
        rows = ", ".join(f"({i}, 'row {i}')" for i in range(1, ROWS + 1))
        _, text = batch("CREATE DATABASE w; CREATE TABLE w.t (a INT PRIMARY KEY); INSERT INTO w.t VALUES (1), (2), (3); CREATE DATABASE app; "
                        f"CREATE TABLE app.held (id INT PRIMARY KEY, v VARCHAR(20)); INSERT INTO app.held VALUES {rows}; "
                        f"CREATE TABLE w.held (id INT PRIMARY KEY, v VARCHAR(20)); INSERT INTO w.held VALUES {rows}", host, port)
        check("ERROR" not in text, text)
        idle(t, cluster, where)
        cursors(t, where)
        compressed(t, where)
        attributes(t, where)
        tracking(t, where)
        fresh(t, where)
        stock_clients(t, host, port)
        long_packets(t, where, host, port)
        cursors_in_memory(t, where)
        environment = {**os.environ, "APUS_HOST": host, "APUS_PORT": str(port), "APUS_DB": "app"}
        classes = (CLIENTS / "java-classpath").read_text().strip()
        _, text = run([shutil.which("java") or "java", "-cp", f"{CLIENTS / 'java'}:{classes}", "apus.Wire"], seconds=60, env=environment, ok=False)
        t.cases_of(text, "Connector/J")
        _, text = run([shutil.which("java") or "java", "-cp", f"{CLIENTS / 'java'}:{classes}", "apus.Xa"], seconds=60, env=environment, ok=False)
        t.cases_of(text, "Connector/J, XA")
        _, text = run([CLIENTS / "go-client", "compress"], seconds=60, env=environment, ok=False)
        t.cases_of(text, "go-sql-driver")


if __name__ == "__main__":
    scenario_main(main)
