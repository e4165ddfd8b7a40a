//! Runs triggers for a row that is written.
//!
//! The session steps aside for it ([`Session::step_aside`]): warnings, counts and the clock of the statement around are as before when the trigger has ended. Its statements are within
//! the transaction of that statement, and undone with it. If the cluster ends the transaction meanwhile, no handler of the body has a say, and the statement around fails as if that had
//! happened to itself: so a statement alone is run again, triggers and all.

use std::{collections::BTreeSet, rc::Rc};

use apus_types::ErrorCode;

use super::{Event, Trigger};
use crate::{
    catalog::Table,
    errors,
    expr::{
        ColumnRef, Context, Expr,
        assign::{self, Assign},
    },
    program::routine::{
        CALLS_MAX, failures,
        run::{
            frame::Frame,
            surroundings::{Surroundings, enter, leave},
        },
    },
    server::Collected,
    session::{Called, Done, Fail, Session, engine::SqlEngine},
    value::datum::Datum,
};

/// A row as triggers see it.
#[derive(Clone, Copy)]
pub struct Rows<'r> {
    pub old: Option<&'r [u8]>,
    pub new: Option<&'r [u8]>,
}

/// What BEFORE triggers made of a new row.
pub struct Fired {
    pub row: Vec<u8>,
    /// Columns that they gave a value.
    pub touched: BTreeSet<u16>,
}

impl SqlEngine {
    /// Runs the BEFORE triggers of an event for a row; the new row, where there is one.
    ///
    /// # Errors
    /// Those of their bodies.
    pub async fn fire_before(
        &self,
        session: &mut Session,
        table: &Table,
        event: Event,
        rows: Rows<'_>,
    ) -> Done<Option<Fired>> {
        let mut fired = rows.new.map(|row| Fired { row: row.to_vec(), touched: BTreeSet::new() });
        for trigger in table.triggers().into_iter().flat_map(|triggers| triggers.of(event, true)) {
            let rows = Rows { new: fired.as_ref().map(|fired| &fired.row[..]), ..rows };
            let frame = Box::pin(self.fire(session, table, trigger, rows)).await?;
            if let Some(fired) = &mut fired {
                take_row(session, table, &frame, fired)?;
            }
        }
        Ok(fired)
    }

    /// Runs the AFTER triggers of an event for a row.
    ///
    /// # Errors
    /// Those of their bodies.
    pub async fn fire_after(&self, session: &mut Session, table: &Table, event: Event, rows: Rows<'_>) -> Done<()> {
        for trigger in table.triggers().into_iter().flat_map(|triggers| triggers.of(event, false)) {
            Box::pin(self.fire(session, table, trigger, rows)).await?;
        }
        Ok(())
    }

    async fn fire(&self, session: &mut Session, table: &Table, trigger: &Rc<Trigger>, rows: Rows<'_>) -> Done<Frame> {
        if session.calls.len() >= CALLS_MAX {
            return Err(failures::too_deep().into());
        }
        if session.calls.iter().any(|other| other.is_trigger(trigger)) {
            return Err(failures::recursive().into());
        }
        let program = trigger.program(&table.schema)?;
        let mut frame = Frame::new(program, trigger.full_name.clone());
        load(session, table, trigger, rows, &mut frame)?;
        let d = &trigger.definition;
        let surroundings = Surroundings {
            database: &table.schema.database,
            database_collation: &d.database_collation,
            sql_mode: &d.sql_mode,
            spoken: (&d.charset, &d.collation),
            definer: Some(&d.definer),
        };
        let around = enter(session, &surroundings)?;
        let aside = session.step_aside();
        let needs = trigger.needs(&table.schema)?;
        let may = if self.is_granted(session, needs) { Ok(()) } else { self.authorize(session, needs).await };
        session.calls.push(Called::Trigger(trigger.clone()));
        let mut unseen = Collected::new(false);
        let done = match may {
            Ok(()) => self.run_program(session, &mut frame, &mut unseen.output()).await,
            Err(e) => Err(e),
        };
        session.calls.pop();
        session.step_back(aside);
        leave(session, around)?;
        match (session.lost_within.take(), done) {
            (Some(lost), _) => Err(Fail::Client(lost)),
            (None, done) => Ok(done.map(|()| frame)?),
        }
    }
}

fn load(session: &Session, table: &Table, trigger: &Trigger, rows: Rows<'_>, frame: &mut Frame) -> errors::Result<()> {
    let schema = &table.schema;
    let is_made = trigger.definition.event == Event::Insert && trigger.definition.is_before;
    for variable in frame.program.clone().rows.iter() {
        let Some(row) = (if variable.is_new { rows.new } else { rows.old }) else { continue };
        let column = &schema.columns[usize::from(variable.column)];
        let cx = Context::of_row(schema.layout(), row, &session.env);
        let value = Expr::Column(ColumnRef { slot: variable.column, ty: column.ty }).eval(&cx)?.into_owned();
        // A value that is to be generated is 0 until then.
        let value = if is_made && column.auto_increment && value.is_null() { Datum::Int(0) } else { value };
        frame.load(variable.place, value);
    }
    Ok(())
}

/// The row with the values that the trigger gave its columns.
fn take_row(session: &Session, table: &Table, frame: &Frame, fired: &mut Fired) -> Result<(), Fail> {
    let schema = &table.schema;
    let env = &session.env;
    let assign = Assign::of(env, &schema.name, 1, false);
    for variable in frame.program.rows.iter().filter(|row| row.is_new && frame.touched.contains(&row.place)) {
        let column = &schema.columns[usize::from(variable.column)];
        let value = assign::assign(column, frame.values[variable.place].borrowed(), assign)?;
        fired.row = assign::replace(schema, &fired.row, variable.column, &value).map_err(|code: ErrorCode| code)?;
        fired.touched.insert(variable.column);
    }
    Ok(())
}
