"""Single statements through one SQL node or the other."""

import pymysql

from .harness import check, check_equal


def connect(cluster, number, database=None):
    node = cluster.describe()["sql"][number]
    return pymysql.connect(host=node["host"], port=node["port"], user="root", autocommit=True, database=database)


def ask(connection, statement):
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchall()


def error_of(connection, statement):
    """(number, words); `None`: there was none."""
    try:
        ask(connection, statement)
    except pymysql.MySQLError as error:
        return error.args
    return None


def refused(connection, statement, number):
    try:
        ask(connection, statement)
    except pymysql.MySQLError as error:
        check_equal(error.args[0], number, statement)
        return
    check(False, f"{statement} was not refused")
