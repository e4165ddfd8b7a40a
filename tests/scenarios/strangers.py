"""Who does not hold a cluster's secret gets nothing from it and ends nothing in it, on any port: real processes, and attackers that
speak the protocol as well as we do (lib/hello.py)."""

import contextlib
import json
import os
import random
import resource
import socket
import time

import pymysql

from lib import hello
from lib.cluster import Cluster
from lib.harness import BINARY, Failure, check, check_equal, end, run, scenario_main, spawn, wait_until
from lib.mariadb import CLIENT, batch

LIMIT_SECONDS = (180, 300)
FLOOD = 2000
SLOW_SECONDS = 30  # a connection is closed within the time limit of the hello, however busy the machine
STOP_ORD, QMGR, CONTROL = 147, 1, 255
MGMT = 0x4001  # the management node; the next number is free


def split(address):
    host, port = address.rsplit(":", 1)
    return host, int(port)


def refused_with(action):
    """The number of the error that an attempt to link meets; 0: a closed connection."""
    try:
        action().close()
    except hello.Refused as refused:
        return refused.code
    raise Failure("a stranger was let in")


def is_closed(connection):
    connection.settimeout(SLOW_SECONDS)
    try:
        while connection.recv(1 << 16):
            pass
    except TimeoutError:
        return False
    except OSError:
        pass
    return True


def stop_order(node, incarnation):
    """`StopOrd` from a management node to QMGR."""
    body = b"\x0a\x04stop" + (b"\x11" + incarnation.to_bytes(8, "little") if incarnation else b"")
    return hello.frame(STOP_ORD, body, hello.block(node, QMGR, CONTROL), hello.block(MGMT + 1, 8))


def main(t):
    resource.setrlimit(resource.RLIMIT_NOFILE, (8192, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    with Cluster(t, "a") as ours, Cluster(t, "b", data_nodes=1, replicas=1) as theirs:
        host, port = ours.sql
        _, text = batch("CREATE DATABASE s; CREATE TABLE s.t (id INT NOT NULL PRIMARY KEY); INSERT INTO s.t VALUES (1)", host, port)
        check("ERROR" not in text, text)
        nodes = wait_until(lambda: [n for n in ours.status()["nodes"] if n["address"]], 20, "data nodes tell their addresses")
        ports = {f"data node {n['id']}": (n["id"], split(n["address"])) for n in nodes}
        ports["management node"] = (MGMT, split(ours.mgmt))
        cluster = int(ours.status()["cluster"], 16)
        node_secret, client_secret = (hello.read_secret(ours.secret_file(kind)) for kind in ("node", "client"))
        foreign = hello.read_secret(theirs.secret_file("node"))
        started = ours.everyone()

        def unharmed():
            ours.check_all_alive(started)
            check(all(n["state"] == "up" for n in ours.status()["nodes"]), "a data node was removed")
            code, text = batch("SELECT COUNT(*) FROM s.t", host, port)
            check(code == 0 and text.split()[-1] == "1", text)

        for name, (number, address) in ports.items():
            peer = 2 if number == 1 else 1
            as_data = {"role": hello.DATA, "node": peer, "cluster": cluster, "workers": 1}
            as_mgmt = {"role": hello.MGMT, "node": MGMT + 1, "cluster": cluster}
            with t.case(f"{name}: what is no hello is closed without an answer"):
                for garbage in (b"GET / HTTP/1.1\r\n\r\n", os.urandom(4096), b"\xff" * 64, stop_order(number, 0)):
                    with socket.create_connection(address) as connection:
                        with contextlib.suppress(ConnectionError):
                            connection.sendall(garbage)
                        check(is_closed(connection), f"{garbage[:16]!r} keeps a connection")
            with t.case(f"{name}: no secret, a wrong one and another cluster's are refused by number"):
                for key in (hello.NO_SECRET, os.urandom(32), foreign):
                    for who in (as_data, as_mgmt, {"role": hello.CLIENT}):
                        code = refused_with(lambda: hello.greet(address, key, verify=False, **who))
                        check_equal(code, hello.NOT_PROVEN, f"role {who['role']}")
            with t.case(f"{name}: the client secret proves no node and no operator, and the node secret no client"):
                for who in (as_data, as_mgmt, {"role": hello.OPERATOR}):
                    check_equal(refused_with(lambda: hello.greet(address, client_secret, verify=False, **who)),
                                hello.ROLE_NOT_PROVEN, f"role {who['role']}")
                check_equal(refused_with(lambda: hello.greet(address, node_secret, verify=False)), hello.NOT_PROVEN, "as a client")
            with t.case(f"{name}: the right secret of another cluster's node is refused"):
                code = refused_with(lambda: hello.greet(address, node_secret, **{**as_mgmt, "cluster": cluster ^ 1}))
                check_equal(code, hello.WRONG_CLUSTER, "another cluster")
            with t.case(f"{name}: a recorded hello and its proof open nothing a second time"):
                kept = {}

                def record(request, challenge, own):
                    kept.update(request=request, proof=own)
                    return own

                hello.greet(address, client_secret, tamper=record).close()
                with socket.create_connection(address, timeout=20) as connection:
                    connection.sendall(hello.frame(hello.HELLO_REQ, kept["request"]) + hello.frame(hello.PROOF_CONF, kept["proof"]))
                    hello.expect(connection, hello.PROOF_REQ)
                    check_equal(refused_with(lambda: hello.expect(connection, hello.HELLO_CONF)), hello.NOT_PROVEN, "a replay")
            with t.case(f"{name}: its own proof sent back to it opens nothing"):
                code = refused_with(lambda: hello.greet(address, node_secret, tamper=lambda q, challenge, own: challenge[:32], **as_mgmt))
                check_equal(code, hello.NOT_PROVEN, "a reflection")
            with t.case(f"{name}: signals in the place of the proof are not read"):
                request = hello.hello_body(hello.CLIENT)
                with socket.create_connection(address, timeout=20) as connection:
                    connection.sendall(hello.frame(hello.HELLO_REQ, request) + stop_order(number, 0))
                    check(is_closed(connection), "the connection stays")
            with t.case(f"{name}: a proven client can send nothing that only nodes may"):
                with hello.greet(address, client_secret, verify=True) as connection:
                    connection.sendall(stop_order(number, 0))
                    check(hello.ping(connection), "the client's own requests are not served any more")
            with t.case(f"{name}: {FLOOD} silent and half-open connections keep nobody out"):
                held = []
                for number_of in range(FLOOD):
                    connection = socket.create_connection(address, timeout=20)
                    if number_of % 2:
                        connection.sendall(hello.frame(hello.HELLO_REQ, hello.hello_body(hello.CLIENT)))
                    held.append(connection)
                    if number_of % 500 == 499:
                        with hello.greet(address, client_secret) as client:
                            check(hello.ping(client), "a client is not served beside them")
                begin = time.monotonic()
                check(all(is_closed(connection) for connection in held), "connections that proved nothing stay open")
                t.say(f"{name}: all closed {time.monotonic() - begin:.1f} s after the last")
                for connection in held:
                    connection.close()
            with t.case(f"{name}: nothing of this ended or removed anybody"):
                unharmed()

        with t.case("nothing stops a node without naming its incarnation, not even a management node"):
            for name, (number, address) in ports.items():
                if number == MGMT:
                    continue
                for incarnation in (0, 7):
                    with hello.greet(address, node_secret, role=hello.MGMT, node=MGMT + 1, cluster=cluster, verify=True) as connection:
                        connection.sendall(stop_order(number, incarnation))
            time.sleep(1)  # whatever it would do, it would do at once
            unharmed()
        with t.case("SQL port: strangers take no user's place"):
            held = [socket.create_connection((host, port), timeout=20) for _ in range(FLOOD)]
            for connection in held[::2]:
                connection.sendall(random.randbytes(3) + b"\0\0")
            unharmed()
            for connection in held:
                connection.close()
        with t.case("the log names the first strangers and counts the rest"):
            log = max((path for path in ours.home.rglob("data-1.log")), key=lambda p: p.stat().st_size)
            lines = [line for line in log.read_text().splitlines() if "refused" in line]
            check(any("APUS-706" in line for line in lines), "no line says who was refused")
            check(any("more connections" in line for line in lines) or len(lines) < FLOOD / 4, "the flood filled the log")
            check(len(lines) < FLOOD / 4, f"{len(lines)} lines about strangers")
        with t.case("beyond loopback no role listens without secrets, and no SQL node without a password"):
            secret = ours.secret_file("client")
            for arguments in (["data", "--node=1", f"--mgmt={ours.mgmt}"], ["mgmt"], ["sql", f"--mgmt={ours.mgmt}"],
                              ["sql", f"--mgmt={ours.mgmt}", f"--client-secret={secret}"]):
                code, text = run([BINARY, *arguments, "--listen=0.0.0.0:0"], seconds=20, ok=False)
                check(code == 1 and "does not listen on 0.0.0.0" in text, f"{arguments[0]} ended with {code}: {text}")
        with t.case("drivers log in with the password of a SQL node, and not with another one"):
            password = ours.home / "root.password"
            password.touch(0o600)
            password.write_text("a long one\n")
            ready = ours.home / "with-password.ready"
            command = [BINARY, "sql", f"--mgmt={ours.mgmt}", f"--client-secret={ours.secret_file('client')}", f"--root-password-file={password}",
                       "--listen=127.0.0.1:0", f"--ready-file={ready}"]
            node = spawn(command)
            t.cleanup.callback(end, node)
            wait_until(ready.exists, 20, "the SQL node with a password is ready")
            at = json.loads(ready.read_text())["port"]
            with contextlib.closing(pymysql.connect(host="127.0.0.1", port=at, user="root", password="a long one")) as connection:
                connection.ping()
            code, text = run([CLIENT, "--no-defaults", "-uroot", "-pa long one", "-h127.0.0.1", f"-P{at}", "-e", "SELECT 1"], ok=False)
            check(code == 0, f"mariadb: {text}")
            # Who proves nothing is asked for the password itself, which this driver sends within TLS only.
            tls = {"check_hostname": False, "verify_mode": "none"}
            for wrong in ("a long", "a long one\n", ""):
                try:
                    pymysql.connect(host="127.0.0.1", port=at, user="root", password=wrong, ssl=tls)
                    raise Failure(f"{wrong!r} was taken for the password")
                except pymysql.MySQLError as error:
                    check_equal(error.args[0], 1045, f"error for {wrong!r}")
        with t.case("what apus dev makes is for its owner alone"):
            for path, wanted in ((ours.secret_file("node"), 0o600), (ours.secret_file("client"), 0o600),
                                 (ours.secret_file("node").parent, 0o700)):
                check_equal(path.stat().st_mode & 0o777, wanted, f"mode of {path.name}")
        with t.case("a secret that others can read is refused"):
            path = ours.home / "copy.secret"
            path.write_bytes(ours.secret_file("client").read_bytes())
            path.chmod(0o644)
            code, text = run([BINARY, "status", f"--mgmt={ours.mgmt}", f"--client-secret={path}"], ok=False)
            check(code == 1 and "chmod 600" in text, text)
            path.chmod(0o600)
            code, text = run([BINARY, "status", f"--mgmt={ours.mgmt}", f"--client-secret={path}"])
            check("up" in text, text)
            foreign_file = theirs.secret_file("client")
            code, text = run([BINARY, "status", f"--mgmt={ours.mgmt}", f"--client-secret={foreign_file}"], ok=False)
            check(code == 1 and "APUS-706" in text, text)


if __name__ == "__main__":
    scenario_main(main)
