"""Accounts that require certificates of their clients (REQUIRE X509, SUBJECT, ISSUER, CIPHER), by stock clients with one, with none and with one that nobody trusts; SQL nodes that trust no authority;
and passwords that the server makes up."""

import contextlib
import subprocess

import pymysql

from lib.cluster import Cluster
from lib.harness import BINARY, check, check_equal, run, scenario_main

LIMIT_SECONDS = (120, 240)
SIDE_BY_SIDE = True
CLIENT = "mariadb"
# As OpenSSL writes it in a line: slashes of a value with a backslash, what is no ASCII in hexadecimal digits.
SUBJECT = r"/C=SE/O=Apus\/Test, \xC3\xA9/OU=x/OU=y/CN=client/emailAddress=a@b.c"
ISSUER = "/C=SE/CN=An authority"
NAMES = {
    "ca": "C=SE\nCN=An authority",
    "other": "CN=Another authority",
    "client": "C=SE\nO=Apus/Test, é\n1.OU=x\n2.OU=y\nCN=client\nemailAddress=a@b.c",
    "wrong": "CN=client",
    "server": "CN=localhost",
}
SIGNED = {"client": "ca", "wrong": "other", "server": "ca"}


def openssl(directory, *arguments):
    done = subprocess.run(["openssl", *arguments], cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    check(done.returncode == 0, f"openssl {' '.join(arguments)}: {done.stdout}")


def certificates(directory):
    directory.mkdir()
    for name, lines in NAMES.items():
        extension = "subjectAltName=DNS:localhost" if name in SIGNED else "basicConstraints=critical,CA:true"
        (directory / f"{name}.cnf").write_text(f"[req]\nprompt=no\nutf8=yes\ndistinguished_name=dn\nreq_extensions=ext\nx509_extensions=ext\n[dn]\n{lines}\n[ext]\n{extension}\n")
        made = ["req", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{name}.key", "-config", f"{name}.cnf"]
        if name not in SIGNED:
            openssl(directory, *made, "-x509", "-days", "30", "-out", f"{name}.pem")
            continue
        authority = SIGNED[name]
        openssl(directory, *made, "-out", f"{name}.csr")
        openssl(directory, "x509", "-req", "-in", f"{name}.csr", "-CA", f"{authority}.pem", "-CAkey", f"{authority}.key", "-CAcreateserial", "-days", "30",
                "-extfile", f"{name}.cnf", "-extensions", "ext", "-out", f"{name}.pem")
    (directory / "server.key").chmod(0o600)


def connect(port, user, tls=None, password=""):
    return contextlib.closing(pymysql.connect(host="localhost", port=port, user=user, password=password, ssl=tls, autocommit=True))


def ask(connection, statement):
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchall()


def outcome(port, user, tls, password=""):
    """`in`, or the number and words of the error."""
    try:
        with connect(port, user, tls, password) as connection:
            ask(connection, "SELECT 1")
            return "in"
    except (pymysql.MySQLError, OSError) as error:
        return error.args[0] if isinstance(error, pymysql.MySQLError) else "broken", str(error)


def main(t):
    directory = t.directory / "certificates"
    certificates(directory)
    ca = {"ca": str(directory / "ca.pem")}
    by = {name: {**ca, "cert": str(directory / f"{name}.pem"), "key": str(directory / f"{name}.key")} for name in ("client", "wrong")}
    with Cluster(t) as cluster:
        own = [f"--tls-cert={directory}/server.pem", f"--tls-key={directory}/server.key"]
        port = cluster.more_sql("trusting", *own, f"--tls-ca={directory}/ca.pem")[1]["port"]
        deaf = cluster.more_sql("deaf", *own)[1]["port"]
        with connect(port, "root") as root:
            users = {
                "x509": "X509", "ssl": "SSL", "none": "NONE", "subject": f"SUBJECT '{pymysql.converters.escape_string(SUBJECT)}'", "stranger": "SUBJECT '/CN=stranger'",
                "issuer": f"ISSUER '{ISSUER}'", "both": f"SUBJECT '{pymysql.converters.escape_string(SUBJECT)}' AND ISSUER '{ISSUER}'", "mixed": f"SUBJECT '/CN=x' AND ISSUER '{ISSUER}'",
                "cipher": "CIPHER 'TLS_NULL'",
            }
            for user, requires in users.items():
                ask(root, f"CREATE USER c_{user} REQUIRE {requires}")
            with connect(port, "root", by["client"]) as encrypted:
                cipher = ask(encrypted, "SHOW STATUS LIKE 'Ssl_cipher'")[0][1]
            ask(root, f"CREATE USER c_suite REQUIRE CIPHER '{cipher}'")
        denied, broken = 1045, "broken"
        with t.case("a certificate of an authority that the SQL node trusts"):
            for user in ("x509", "ssl", "none", "subject", "issuer", "both", "suite"):
                check_equal(outcome(port, f"c_{user}", by["client"]), "in", f"{user} with a certificate")
            for user in ("stranger", "mixed", "cipher"):
                check_equal(outcome(port, f"c_{user}", by["client"])[0], denied, f"{user} with a certificate of another name")
            command = [CLIENT, "--no-defaults", "-uc_x509", "-h127.0.0.1", f"-P{port}", "-N", f"--ssl-ca={directory}/ca.pem", f"--ssl-cert={directory}/client.pem", f"--ssl-key={directory}/client.key", "-e", "SELECT 1"]
            check_equal(run(command)[1].strip(), "1", "the stock client")
        with t.case("no certificate"):
            for tls in (ca, None):
                for user in ("x509", "subject", "issuer", "both", "cipher", "suite"):
                    check_equal(outcome(port, f"c_{user}", tls)[0], denied, f"{user} without a certificate, {tls}")
                check_equal(outcome(port, "c_none", tls), "in", f"an account that requires nothing, {tls}")
            check_equal(outcome(port, "c_ssl", ca), "in", "SSL without a certificate")
            check_equal(outcome(port, "c_ssl", None)[0], denied, "SSL without TLS")
        with t.case("a certificate of another authority ends the handshake"):
            for user in ("x509", "ssl", "none"):
                found = outcome(port, f"c_{user}", by["wrong"])
                check(found != "in" and found[0] in (broken, 2003, 2006, 2013), f"{user}: {found}")
            check_equal(outcome(port, "c_x509", by["client"]), "in", "another client, then")
        with t.case("a SQL node that asks nobody for a certificate says so"):
            for user in ("x509", "subject"):
                number, words = outcome(deaf, f"c_{user}", by["client"])
                check(number == denied and "--tls-ca" in words, words)
            check_equal(outcome(deaf, "c_ssl", by["client"]), "in", "SSL")
        with t.case("what an account requires changes for the next login"):
            with connect(port, "root") as root:
                ask(root, "ALTER USER c_none REQUIRE X509")
                ask(root, "ALTER USER c_stranger REQUIRE NONE")
            check_equal(outcome(port, "c_none", ca)[0], denied, "X509 now")
            check_equal(outcome(port, "c_none", by["client"]), "in", "X509 now, with a certificate")
            check_equal(outcome(port, "c_stranger", None), "in", "nothing now")
        with t.case("passwords that the server makes up"):
            with connect(port, "root", ca) as root:
                made = ask(root, "CREATE USER r_one@localhost IDENTIFIED BY RANDOM PASSWORD, r_two IDENTIFIED WITH mysql_native_password BY RANDOM PASSWORD, r_three IDENTIFIED BY 'x'")
                check_equal([(user, host, factor) for user, host, _, factor in made], [("r_one", "localhost", 1), ("r_two", "%", 1)], "whom they are for")
                check_equal({len(password) for _, _, password, _ in made}, {20}, "their lengths")
                for user, _, password, _ in made:
                    check_equal(outcome(port, user, ca, password), "in", f"{user} with {password}")
                    check_equal(outcome(port, user, ca, password + "x")[0], denied, f"{user} with another")
                ask(root, "SET generated_random_password_length = 50")
                (_, _, second, _), = ask(root, "ALTER USER r_one@localhost IDENTIFIED BY RANDOM PASSWORD")
                check_equal(len(second), 50, "a longer one")
                check_equal(outcome(port, "r_one", ca, second), "in", "the second one")
                check_equal(outcome(port, "r_one", ca, made[0][2])[0], denied, "the first one")
                check_equal(ask(root, "ALTER USER r_three COMMENT 'x'"), [], "no password")
                check_equal(ask(root, "CREATE USER IF NOT EXISTS r_three IDENTIFIED BY RANDOM PASSWORD"), [], "one that was there")
                check_equal(outcome(port, "r_three", ca, "x"), "in", "whose password stays")
            with connect(port, "r_one", ca, second) as session:
                (user, host, third, _), = ask(session, "SET PASSWORD TO RANDOM")
                check_equal((user, host), ("r_one", "localhost"), "the own one")
            check_equal(outcome(port, "r_one", ca, third), "in", "the third one")
        with t.case("files that cannot be used are refused by name"):
            for name in ("nothing.pem", "server.key"):
                code, text = run([BINARY, "sql", f"--mgmt={cluster.mgmt}", "--listen=127.0.0.1:0", *own, f"--tls-ca={directory}/{name}"], ok=False)
                check(code != 0 and f"{directory}/{name}" in text, text)
        cluster.check_all_alive()


if __name__ == "__main__":
    scenario_main(main)
