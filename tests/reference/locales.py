#!/usr/bin/env python3
"""The locales of MySQL: asks the reference for the names of months and days, and how numbers are written, and writes crates/sql/src/value/locales.tsv.

A line is a locale, in the order of their numbers: its name, its decimal point, what is between groups of digits (bg_BG: a zero byte), digits of the last group and of those
before (0 0: there are no groups), then months from January on, their short forms, days from Monday on, their short forms, each list joined by `|`.
"""

import datetime
import itertools
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from lib import answers  # noqa: E402
from lib.harness import Scenario  # noqa: E402
from lib.mysql import MySql  # noqa: E402

TABLE = pathlib.Path(__file__).resolve().parents[2] / "crates/sql/src/value/locales.tsv"
DIGITS = "12345678901234567890"
MONDAY = datetime.date(2024, 1, 1)
UNKNOWN_LOCALE = 1649


def value(connection, expression):
    cursor = connection.cursor()
    cursor.execute(f"SELECT {expression}")
    found = cursor.fetchone()[0]
    return found.decode() if isinstance(found, bytes) else found


def numbers(connection, name):
    """(point, separator, digits of the last group, of those before)."""
    text = value(connection, f"FORMAT({DIGITS}.5, 1, '{name}')")
    point, whole = text[-2], text[:-2]
    separator = next((c for c in whole if not c.isdigit()), "")
    if not separator:
        return point, "", 0, 0
    groups = whole.split(separator)
    last, before = len(groups[-1]), len(groups[-2])
    assert "".join(groups) == DIGITS and all(len(group) == before for group in groups[1:-1]), text
    return point, separator.replace("\0", "\\0"), last, before


def line(connection, number):
    connection.query(f"SET lc_time_names = {number}")
    name = value(connection, "@@lc_time_names")
    months = [datetime.date(2024, month, 1) for month in range(1, 13)]
    days = [MONDAY + datetime.timedelta(day) for day in range(7)]
    lists = [[value(connection, f"DATE_FORMAT('{day}', '{code}')") for day in of] for of, code in ((months, "%M"), (months, "%b"), (days, "%W"), (days, "%a"))]
    assert not any("|" in word or "\t" in word for words in lists for word in words)
    return "\t".join([name, *map(str, numbers(connection, name)), *("|".join(words) for words in lists)])


def count(connection):
    for number in itertools.count():
        try:
            connection.query(f"SET lc_time_names = {number}")
        except answers.ServerError as error:
            assert error.args[0] == UNKNOWN_LOCALE, error
            return number


def main():
    scenario = Scenario("locales")
    with scenario.cleanup:
        server = scenario.cleanup.enter_context(MySql(scenario.directory / "m"))
        connection = answers.connect(unix_socket=str(server.socket))
        lines = [line(connection, number) for number in range(count(connection))]
        TABLE.write_text("".join(f"{text}\n" for text in lines))
        print(f"{len(lines)} locales")


if __name__ == "__main__":
    main()
