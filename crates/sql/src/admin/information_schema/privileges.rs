//! The tables of privileges in INFORMATION_SCHEMA: what accounts may do, as those see it who may.

use super::{text, yes};
use crate::{
    accounts::{Account, Columns, Privileges, identity::Identity},
    value::datum::Row,
};

/// The accounts that one may see: all, or his own.
pub(super) fn shown_accounts(me: &Identity) -> impl Iterator<Item = &Account> {
    let all = me.rights.on_database("mysql").contains(Privileges::SELECT);
    me.directory.iter().map(|a| &**a).filter(move |a| all || a.name == me.account.name)
}

/// A row for each privilege, and one that says USAGE where there is none.
fn privilege_rows(account: &Account, privileges: Privileges, place: &[&str]) -> Vec<Row> {
    let mut names = privileges.names();
    names.extend(privileges.dynamic_names());
    if names.is_empty() {
        names.push("USAGE");
    }
    let row = |name: &str| {
        let mut row = vec![text(account.name.quoted()), text("def")];
        row.extend(place.iter().map(|name| text(*name)));
        row.extend([text(name), yes(privileges.contains(Privileges::GRANT_OPTION))]);
        row
    };
    names.into_iter().map(row).collect()
}

pub(super) fn user_privileges(me: &Identity) -> Vec<Row> {
    shown_accounts(me).flat_map(|a| privilege_rows(a, a.global, &[])).collect()
}

pub(super) fn schema_privileges(me: &Identity) -> Vec<Row> {
    let of = |a: &Account| a.databases.iter().flat_map(|(d, p)| privilege_rows(a, *p, &[d])).collect::<Vec<_>>();
    shown_accounts(me).flat_map(of).collect()
}

pub(super) fn table_privileges(me: &Identity) -> Vec<Row> {
    let of = |a: &Account| a.tables.iter().flat_map(|((d, t), p)| privilege_rows(a, *p, &[d, t])).collect::<Vec<_>>();
    shown_accounts(me).flat_map(of).collect()
}

pub(super) fn column_privileges(me: &Identity) -> Vec<Row> {
    let of_account = |a: &Account| {
        let of_table = |((database, table), columns): (&(String, String), &Columns)| {
            let on_table = a.tables.get(&(database.clone(), table.clone())).copied().unwrap_or_default();
            let option = on_table.intersection(Privileges::GRANT_OPTION);
            let of_column =
                |(name, p): (&str, Privileges)| privilege_rows(a, p.union(option), &[database, table, name]);
            columns.iter().flat_map(of_column).collect::<Vec<_>>()
        };
        a.columns.iter().flat_map(of_table).collect::<Vec<_>>()
    };
    shown_accounts(me).flat_map(of_account).collect()
}
