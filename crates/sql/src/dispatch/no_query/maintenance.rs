//! ANALYZE, CHECK, OPTIMIZE and REPAIR of tables.

use crate::{
    accounts::Privileges,
    ddl::histogram::clause,
    errors::{self, Result},
    parse::{
        token::{Name, Tokens},
        view_text::quoted,
    },
    plan::text::plan_text,
    server::Output,
    session::{Session, authorize::database_denied, engine::SqlEngine},
};

impl SqlEngine {
    /// ANALYZE measures tables; for the others there is nothing to do.
    pub(super) async fn maintain(&self, session: &mut Session, t: &mut Tokens, out: &mut Output<'_>) -> Result<()> {
        let verb = t.identifier()?.to_ascii_lowercase();
        let _ = t.word("local") || t.word("no_write_to_binlog");
        t.expect("table")?;
        let at = t.position();
        if verb == "analyze"
            && let Some((tables, clause)) = clause::of_statement(t)?
        {
            return Box::pin(self.analyze_values(session, tables, &clause, out)).await;
        }
        t.rewind(at);
        let mut rows = Vec::new();
        loop {
            let (database, table) = t.name()?;
            let database = database.or_else(|| session.env.database.clone()).unwrap_or_default();
            let mut say = |kind: &str, text: String| {
                let name = format!("{database}.{table}");
                rows.push([name, verb.clone(), kind.to_owned(), text].into_iter().map(Some).collect::<Vec<_>>());
            };
            let needed = match verb.as_str() {
                "check" => Privileges::SELECT,
                _ => Privileges::SELECT.union(Privileges::INSERT),
            };
            if session.temporary.find(&database, &table).is_none() {
                self.require_on_table(session, (&database, &table), needed).await?;
            }
            let catalog = self.catalog_of(session).await?;
            let failed = match catalog.table(&database, &table) {
                Ok(found) if verb == "analyze" && !crate::catalog::information_schema::is_virtual(&found.schema) => {
                    let gathered = catalog.statistics.gather(&self.client, &found, true).await;
                    match gathered {
                        Ok(()) => Box::pin(self.renew_histograms(session, &found, out)).await.err(),
                        Err(e) => Some(errors::from_client(&e)),
                    }
                }
                Ok(_) => None,
                Err(_) if verb == "check" && catalog.view(&database, &table).is_some() => {
                    let text = format!("SELECT * FROM {}.{}", quoted(&database), quoted(&table));
                    plan_text(&catalog, &session.env, &text, Vec::new()).err()
                }
                Err(e) => Some(e),
            };
            match failed {
                None => say("status", "OK".to_owned()),
                Some(e) => {
                    say("Error", e.message.clone());
                    let is_view = verb == "check" && e.errno == 1356;
                    match is_view {
                        true => say("error", "Corrupt".to_owned()),
                        false => say("status", "Operation failed".to_owned()),
                    }
                }
            }
            if !t.symbol(',') {
                break;
            }
        }
        maintenance_options(&verb, t)?;
        crate::admin::show::table(session, out, &["Table", "Op", "Msg_type", "Msg_text"], &rows);
        Ok(())
    }

    /// ANALYZE TABLE with histograms.
    async fn analyze_values(
        &self,
        session: &mut Session,
        tables: Vec<Name>,
        clause: &clause::Clause,
        out: &mut Output<'_>,
    ) -> Result<()> {
        let default = session.env.database.clone().unwrap_or_default();
        let mut named =
            tables.into_iter().map(|(database, table)| (database.unwrap_or_else(|| default.clone()), table));
        let (database, table) = named.next().unwrap_or_default();
        let others: Vec<_> = named.collect();
        if others.contains(&(database.clone(), table.clone())) {
            return Err(errors::not_unique_table(&table));
        }
        if database.eq_ignore_ascii_case(crate::catalog::information_schema::DATABASE) {
            return Err(database_denied(&session.env, &database));
        }
        self.require_on_table(session, (&database, &table), Privileges::SELECT.union(Privileges::INSERT)).await?;
        self.end_transaction(session, true).await?;
        let (name, said) = if others.is_empty() {
            let said = self.change_histograms(session, (&database, &table), clause, out).await?;
            (format!("{database}.{table}"), said)
        } else {
            let text = "Only one table can be specified while modifying histogram statistics.";
            (String::new(), vec![("Error", text.to_owned())])
        };
        let row = |(kind, text): (&str, String)| {
            [name.clone(), "histogram".to_owned(), kind.to_owned(), text].map(Some).to_vec()
        };
        let rows: Vec<_> = said.into_iter().map(row).collect();
        crate::admin::show::table(session, out, &["Table", "Op", "Msg_type", "Msg_text"], &rows);
        Ok(())
    }
}

/// Behind the tables of ANALYZE, CHECK, OPTIMIZE and REPAIR: how thorough it is to be, which makes no difference here.
fn maintenance_options(verb: &str, t: &mut Tokens) -> Result<()> {
    let known: &[&str] = match verb {
        "check" => &["quick", "fast", "medium", "extended", "changed"],
        "repair" => &["quick", "extended", "use_frm"],
        _ => &[],
    };
    while !t.at_end() {
        if verb == "check" && t.word("for") {
            t.expect("upgrade")?;
        } else if !known.iter().any(|option| t.word(option)) {
            return Err(t.error());
        }
    }
    Ok(())
}
