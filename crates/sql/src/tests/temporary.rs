//! A session's temporary tables, as planning sees them.

use std::{collections::BTreeMap, rc::Rc};

use super::{catalog_with_view, env, table};
use crate::{
    catalog::{Catalog, Table},
    plan::{
        Plan,
        cache::{Cached, PlanCache, key_of},
        text::plan_text,
    },
};
use apus_types::TableSchema;

const VIEW: &str = "select `d`.`t`.`id` AS `x` from `d`.`t`";

/// A session that has tables of these names, each with a column `own`.
fn with_own(permanent: &Rc<Catalog>, names: &[&str], number: u64) -> Catalog {
    let named = names.iter().zip(90..).map(|(name, id)| {
        let schema = TableSchema::try_from(&table("create table kept (own int primary key)", id)).unwrap();
        (("d".to_owned(), (*name).to_owned()), Rc::new(Table::new(schema, Vec::new()).as_own("d", name)))
    });
    Catalog::with_own(permanent, Rc::new(named.collect::<BTreeMap<_, _>>()), number)
}

fn heading(catalog: &Catalog, sql: &str) -> Result<String, u16> {
    match plan_text(catalog, &env(), sql, Vec::new()) {
        Ok(Plan::Select(select)) => Ok(select.outputs[0].def.name.clone()),
        Ok(other) => panic!("{sql}: {other:?}"),
        Err(e) => Err(e.errno),
    }
}

#[test]
fn they_hide_tables_and_views_but_not_from_views() {
    let permanent = Rc::new(catalog_with_view(VIEW, &["x"], &Catalog::default()));
    let own = with_own(&permanent, &["t"], 1);
    assert_eq!(heading(&permanent, "SELECT * FROM t").as_deref(), Ok("id"));
    assert_eq!(heading(&own, "SELECT * FROM t").as_deref(), Ok("own"));
    assert_eq!(heading(&own, "SELECT * FROM d.t x WHERE x.own = 1").as_deref(), Ok("own"));
    assert_eq!(heading(&own, "SELECT * FROM v").as_deref(), Ok("x"));
    assert_eq!(heading(&with_own(&permanent, &["v"], 2), "SELECT * FROM v").as_deref(), Ok("own"));
    let names: Vec<_> = own.tables().map(|table| table.schema.name.clone()).collect();
    assert_eq!(names, ["pair", "t"], "lists have the permanent ones alone");
    assert!(!own.tables().any(|table| table.is_temporary()));
}

#[test]
fn a_statement_names_each_once() {
    let permanent = Rc::new(catalog_with_view(VIEW, &["x"], &Catalog::default()));
    let own = with_own(&permanent, &["t", "other"], 1);
    for sql in [
        "SELECT * FROM t AS a JOIN t AS b USING (own)",
        "SELECT * FROM t WHERE own = (SELECT MAX(own) FROM t)",
        "SELECT * FROM t UNION SELECT * FROM t",
        "INSERT INTO t SELECT * FROM t",
        "UPDATE t SET own = (SELECT 1 FROM t)",
        "DELETE FROM t WHERE own IN (SELECT own FROM t)",
    ] {
        assert_eq!(plan_text(&own, &env(), sql, Vec::new()).map_err(|e| e.errno).err(), Some(1137), "{sql}");
    }
    for sql in [
        "SELECT * FROM t JOIN other JOIN pair JOIN v",
        "INSERT INTO t SELECT own FROM other",
        "INSERT INTO t VALUES (1) ON DUPLICATE KEY UPDATE own = 2",
        "UPDATE t JOIN pair SET t.own = 3",
        "UPDATE t SET own = 4 WHERE own IN (SELECT own FROM other)",
        "DELETE t FROM t JOIN other USING (own)",
        "DELETE FROM t ORDER BY own LIMIT 1",
        "WITH q AS (SELECT own FROM t) SELECT * FROM q WHERE own > 1",
    ] {
        assert_eq!(plan_text(&own, &env(), sql, Vec::new()).err(), None, "{sql}");
    }
}

#[test]
fn a_plan_is_for_those_who_see_its_tables() {
    let permanent = Rc::new(catalog_with_view(VIEW, &["x"], &Catalog::default()));
    let (own, others) = (with_own(&permanent, &["t"], 1), with_own(&permanent, &["t"], 2));
    let mut plans = PlanCache::default();
    for sql in ["SELECT * FROM t", "SELECT * FROM pair"] {
        let find = |plans: &mut PlanCache, catalog: &Catalog| {
            plans.find((sql.as_bytes(), key_of(sql.as_bytes())), Some("d"), catalog, Default::default()).is_some()
        };
        let is_shared = sql.ends_with("pair");
        let plan = plan_text(&own, &env(), sql, Vec::new()).unwrap();
        plans.put(sql.as_bytes(), Some("d"), &own, Default::default(), Cached::Plan(Rc::new(plan)));
        assert!(find(&mut plans, &own), "{sql}");
        assert_eq!(find(&mut plans, &permanent), is_shared, "{sql}");
        assert_eq!(find(&mut plans, &others), is_shared, "{sql}");
        let plan = plan_text(&permanent, &env(), sql, Vec::new()).unwrap();
        plans.put(sql.as_bytes(), Some("d"), &permanent, Default::default(), Cached::Plan(Rc::new(plan)));
        assert_eq!(find(&mut plans, &own), is_shared, "{sql}");
    }
}
