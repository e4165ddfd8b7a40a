//! Tests of `variables`.

use super::*;

#[test]
fn values_are_checked() {
    let mut vars = Variables::default();
    assert!(vars.autocommit);
    vars.set("autocommit", Some(&Datum::text("OFF"))).unwrap();
    assert!(!vars.autocommit);
    assert_eq!(vars.get("autocommit", false).unwrap(), Datum::Int(0));
    assert_eq!(vars.get("autocommit", true).unwrap(), Datum::Int(1));
    let later = Variables::new(vars.globals.clone(), false);
    for (value, on_disk) in [("DISK", true), ("replicated", false), ("disk", true)] {
        vars.set("apus_durability", Some(&Datum::text(value))).unwrap();
        assert_eq!((vars.on_disk, later.on_disk), (on_disk, false));
    }
    assert_eq!(vars.get("apus_durability", true).unwrap(), Datum::text("replicated"));
    for wrong in [Datum::text("often"), Datum::Int(1), Datum::Null] {
        assert_eq!(vars.set("apus_durability", Some(&wrong)).unwrap_err().errno, 1231);
        assert_eq!(vars.set_global("apus_durability", Some(&wrong)).unwrap_err().errno, 1231);
    }
    later.set_global("apus_durability", Some(&Datum::text("disk"))).unwrap();
    assert_eq!(vars.get("apus_durability", true).unwrap(), Datum::text("disk"));
    vars.set("apus_durability", Some(&Datum::text("replicated"))).unwrap();
    vars.set("apus_durability", None).unwrap();
    assert!(vars.on_disk && !later.on_disk && Variables::new(vars.globals.clone(), false).on_disk);
    assert_eq!(vars.set("version", Some(&Datum::Int(1))).unwrap_err().errno, 1238);
    assert_eq!(vars.set("nonsense", None).unwrap_err().errno, 1193);
    for (level, in_force) in [
        ("repeatable-read", Isolation::RepeatableRead),
        ("READ-UNCOMMITTED", Isolation::ReadCommitted),
        ("serializable", Isolation::Serializable),
        ("READ-COMMITTED", Isolation::ReadCommitted),
    ] {
        assert_eq!(vars.set("transaction_isolation", Some(&Datum::text(level))).unwrap(), None);
        assert_eq!(vars.get("tx_isolation", false).unwrap(), Datum::text(in_force.name()));
        assert_eq!(vars.isolation, in_force);
    }
    assert!(vars.set("transaction_isolation", Some(&Datum::text("CHAOS"))).is_err());
    vars.set("time_zone", Some(&Datum::text("+02:00"))).unwrap();
    assert_eq!(vars.zone, Zone::Offset(7_200_000_000));
    assert!(vars.set("time_zone", Some(&Datum::text("Mars"))).is_err());
    vars.set("sql_mode", Some(&Datum::text("ANSI_QUOTES"))).unwrap();
    assert!(vars.syntax.ansi_quotes && !vars.strict);
    vars.set("sql_mode", None).unwrap();
    assert!(!vars.syntax.ansi_quotes && vars.strict);
}
