"""Ruby: ActiveRecord with mysql2, with texts and with prepared statements. It migrates its schema, works as an application does, and writes while data nodes are killed."""

import os

from lib import apps
from lib.clients import HERE, Program, run_programs
from lib.cluster import Cluster
from lib.harness import scenario_main

LIMIT_SECONDS = (240, 240)
SIDE_BY_SIDE = True
VERSION = "3.1.0"


def environment(folder):
    """Ruby looks for its own files where Debian would install them."""
    everywhere, native = folder / "usr/lib/ruby", folder / "usr/lib/x86_64-linux-gnu/ruby"
    gems = folder / "usr/share/rubygems-integration"
    libraries = [everywhere / "vendor_ruby", native / "vendor_ruby" / VERSION, everywhere / VERSION, native / VERSION]
    places = [everywhere / "gems" / VERSION, gems / "all", gems / VERSION]
    return {**apps.environment(folder), "RUBYLIB": os.pathsep.join(map(str, libraries)), "GEM_PATH": os.pathsep.join(map(str, places))}


def main(t):
    folder = apps.unpacked("ruby", "ruby", "ruby-activerecord", "ruby-mysql2")
    command = [folder / "usr/bin/ruby3.1", HERE / "ruby" / "shop.rb"]
    programs = [Program(name, command, environment(folder)) for name in ("ActiveRecord", "ActiveRecord-prepared")]
    with Cluster(t) as cluster:
        run_programs(t, cluster, programs)


if __name__ == "__main__":
    scenario_main(main)
