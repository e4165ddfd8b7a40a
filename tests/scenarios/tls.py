"""TLS on the SQL port: stock clients encrypt by themselves and can verify the server, `--require-tls` refuses who does not, and who breaks the handshake harms nobody."""

import contextlib
import socket
import ssl
import struct

import pymysql

from lib.cluster import Cluster
from lib.harness import BINARY, Failure, check, check_equal, run, scenario_main

LIMIT_SECONDS = (120, 240)
SIDE_BY_SIDE = True
CLIENT = "mariadb"
SSL, PROTOCOL_41 = 1 << 11, 1 << 9


def stock(port, *options, ok=True):
    """Code and output of the stock client that asks how it is encrypted."""
    command = [CLIENT, "--no-defaults", "-uroot", "-h127.0.0.1", f"-P{port}", "-N", *options, "-e", "SHOW STATUS LIKE 'Ssl_version'"]
    return run(command, ok=ok)


def connect(port, **options):
    return contextlib.closing(pymysql.connect(host="localhost", port=port, user="root", autocommit=True, **options))


def ask(connection, statement):
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchall()


def refused(error_numbers, what, make):
    try:
        make()
    except pymysql.MySQLError as error:
        check(error.args[0] in error_numbers, f"{what}: {error!r}")
        return
    raise Failure(f"{what}: no error")


def stock_clients(t, port, directory):
    ca = directory / "ca.pem"
    with t.case("the stock client encrypts without being asked to, and verifies the server"):
        for options in ([], ["--ssl"], ["--ssl", "--ssl-verify-server-cert", f"--ssl-ca={ca}"]):
            check_equal(stock(port, *options)[1].split(), ["Ssl_version", "TLSv1.3"], f"{options}")
        check_equal(stock(port, "--tls-version=TLSv1.2")[1].split(), ["Ssl_version", "TLSv1.2"], "an older version")
        check_equal(stock(port, "--skip-ssl")[1].split(), ["Ssl_version"], "without")
    with t.case("a driver verifies the server's name, and refuses one that its authorities do not know"):
        with connect(port, ssl={"ca": str(ca)}) as connection:
            check_equal(ask(connection, "SELECT 1"), ((1,),), "an answer")
        refused({2003}, "an unknown authority", lambda: pymysql.connect(host="localhost", port=port, user="root", ssl=ssl.create_default_context()))
    with t.case("long answers, long statements and many short ones"):
        with connect(port, ssl={"ca": str(ca)}, max_allowed_packet=32 << 20) as connection:
            check_equal(len(ask(connection, "SELECT REPEAT('x', 8000000)")[0][0]), 8_000_000, "bytes of an answer")
            check_equal(ask(connection, f"SELECT LENGTH('{'y' * 8_000_000}')"), ((8_000_000,),), "bytes of a statement")
            ask(connection, "CREATE TABLE test.many (id INT PRIMARY KEY, v INT)")
            for i in range(2000):
                ask(connection, f"INSERT INTO test.many VALUES ({i}, {i})")
            check_equal(ask(connection, "SELECT COUNT(*), SUM(v) FROM test.many"), ((2000, 1_999_000),), "rows")
            with connection.cursor(pymysql.cursors.SSCursor) as rows:
                rows.execute("SELECT a.id, b.id FROM test.many a JOIN test.many b ON b.id < 100")
                check_equal(sum(1 for _ in rows), 200_000, "rows of a long result")


def settings(t, cluster, directory):
    with t.case("a SQL node that requires TLS refuses who does without"):
        port = cluster.more_sql("strict", "--require-tls")[1]["port"]
        check_equal(stock(port)[1].split(), ["Ssl_version", "TLSv1.3"], "with TLS, by a certificate of its own")
        refused({3159}, "without TLS", lambda: pymysql.connect(host="localhost", port=port, user="root", ssl_disabled=True))
        with connect(port, ssl={"check_hostname": False, "verify_mode": "none"}) as connection:
            check_equal(ask(connection, "SELECT @@require_secure_transport, @@tls_version"), ((1, "TLSv1.2,TLSv1.3"),), "variables")
    with t.case("a SQL node without TLS offers none, and says so"):
        port = cluster.more_sql("plain", "--no-tls")[1]["port"]
        check_equal(stock(port)[1].split(), ["Ssl_version"], "not encrypted")
        code, text = stock(port, "--ssl-verify-server-cert", f"--ssl-ca={directory / 'ca.pem'}", ok=False)
        check(code != 0, text)
    with t.case("files that cannot be used are refused by name"):
        command = [BINARY, "sql", f"--mgmt={cluster.mgmt}", "--listen=127.0.0.1:0"]
        cert, key, shown = directory / "server-cert.pem", directory / "server-key.pem", cluster.home / "shown.pem"
        shown.write_bytes(key.read_bytes())
        shown.chmod(0o644)
        for options, why in (([cert, shown], "chmod 600"), ([cert, cluster.secret_file("client")], "private key cannot be read"),
                             ([directory / "ca.pem", key], "cannot be used"), ([directory / "none.pem", key], "cannot read")):
            code, text = run([*command, f"--tls-cert={options[0]}", f"--tls-key={options[1]}"], seconds=20, ok=False)
            check(code == 1 and why in text, f"{options}: ended with {code}: {text}")


def broken(t, port):
    with t.case("who breaks the handshake is dropped, and nobody else"):
        request = struct.pack("<IIB23x", SSL | PROTOCOL_41, 1 << 24, 45)
        request = struct.pack("<I", len(request) | 1 << 24) + request
        statement = b"\x1f\0\0\2\3DROP DATABASE IF EXISTS test;  "
        with connect(port, ssl_disabled=True) as other:
            for junk in (b"", b"\0" * 64, statement, b"\x16\x03\x01\x40\x00" + b"\xff" * 4096, request):
                with socket.create_connection(("127.0.0.1", port), timeout=20) as stranger:
                    stranger.recv(4096)
                    stranger.sendall(request + junk)
                    if not junk:
                        stranger.shutdown(socket.SHUT_WR)
                    with contextlib.suppress(ConnectionResetError):
                        while stranger.recv(4096):
                            pass
                check_equal(ask(other, "SELECT COUNT(*) FROM test.many"), ((2000,),), f"rows after {junk[:8]}")


def body(t):
    with Cluster(t) as cluster:
        port = cluster.describe()["sql"][0]["port"]
        directory = cluster.secret_file("client").parent
        stock_clients(t, port, directory)
        settings(t, cluster, directory)
        broken(t, port)


if __name__ == "__main__":
    scenario_main(body)
