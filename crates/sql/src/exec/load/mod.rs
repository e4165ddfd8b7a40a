//! LOAD DATA INFILE, with and without LOCAL.
//!
//! ```text
//! statement -> plan of an INSERT into its columns -> client is asked for the file, or it is opened here -> rows -> batches of the INSERT path -> commit
//! ```
//!
//! The file is cut into rows ([`lines`]) as it comes, and rows are stored 1000 at a time as INSERT IGNORE or REPLACE store theirs ([`super::conflict`]): a SQL node
//! holds a batch and the row that is read, however long the file is. All rows are one transaction, or belong to the one that is open. The file comes once:
//! what fails in the middle is rolled back and told to the client, not tried again here.
//!
//! Which files of this machine may be read is said in [`crate::files`]. They go by the rules of INSERT unless the statement says IGNORE or REPLACE: in strict mode what cannot be stored as it is ends it.
//!
//! As in MySQL, what comes from a client goes by the rules of IGNORE unless the statement says REPLACE: rows whose keys are taken are skipped, values
//! are stored as well as they can be, each with a warning. With REPLACE strict mode holds.

mod lines;
mod rows;
mod statement;

use std::{pin::pin, rc::Rc};

use self::{
    rows::Loading,
    statement::{Duplicates, Load, Target},
};
use super::{Changed, Info};
use crate::{
    accounts::{Privileges, Secret},
    catalog::{Catalog, copies},
    errors::{self, Result},
    expr::Expr,
    files::{Reader, encode::width_of_column},
    plan::{Insert, Plan, text::plan_text},
    server::Output,
    session::{Session, buffers::Scratch, engine::SqlEngine, read_locks::Kept},
    value::datum::Datum,
    wire::capability,
};
use apus_types::{ColumnType, TableSchema};

/// Bytes of rows that are sent at once, if they are several.
const BATCH_BYTES_MAX: usize = 4 << 20;

/// What is done with each row of the file.
struct Planned {
    insert: Box<Insert>,
    goals: Vec<Goal>,
    /// Bytes of each field, and of all, where rows are of fixed lengths; else none.
    widths: (Vec<usize>, usize),
    /// SET.
    assignments: Vec<(u16, Expr)>,
    /// An assignment reads the row.
    reads_row: bool,
}

/// Where a field goes.
enum Goal {
    Column(u16),
    Variable(String),
}

/// What a column gets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cell {
    Unnamed,
    Field(usize),
    Null,
    Missing,
    Assigned(usize),
    /// The value in the draft of the row.
    Drafted,
}

impl SqlEngine {
    pub(crate) async fn load_data(
        &self,
        session: &mut Session,
        s: &mut Scratch,
        text: &str,
        out: &mut Output<'_>,
    ) -> Result<()> {
        let variables = &session.env.variables;
        let load = Load::parse(text, variables.syntax, variables.of_database())?;
        if !load.is_local {
            return Box::pin(self.load_data_here(session, s, &load, out)).await;
        }
        if session.info.capabilities & capability::LOCAL_FILES == 0 || !session.env.variables.local_infile() {
            return Err(errors::local_files_disabled());
        }
        let (catalog, planned) = self.plan_load(session, &load).await?;
        out.ask_for_file(load.file.as_bytes()).await?;
        let source = Source::Client(out);
        let done = pin!(self.load_file(session, s, &catalog, &load, &planned, source)).await;
        match done {
            Ok(changed) => {
                self.answer(session, s, 0, Some(changed), out);
                Ok(())
            }
            Err(e) => {
                out.give_up_file().await;
                Err(e)
            }
        }
    }

    /// LOAD DATA INFILE of a file of this machine.
    async fn load_data_here(
        &self,
        session: &mut Session,
        s: &mut Scratch,
        load: &Load,
        out: &mut Output<'_>,
    ) -> Result<()> {
        if let Some(me) = self.identity(session).await?
            && !me.rights.global.contains(Privileges::FILE)
        {
            let has_password = me.account.auth.secret != Secret::Empty;
            return Err(errors::access_denied(&session.env.user, &session.env.host, has_password));
        }
        let (catalog, planned) = self.plan_load(session, load).await?;
        let places = session.env.variables.places().clone();
        let reader = Reader::open(places, &load.file, &session.info.interrupt).await?;
        let source = Source::Here(reader);
        let changed = pin!(self.load_file(session, s, &catalog, load, &planned, source)).await?;
        self.answer(session, s, 0, Some(changed), out);
        Ok(())
    }

    async fn plan_load(&self, session: &mut Session, load: &Load) -> Result<(Rc<Catalog>, Planned)> {
        // What a field gives them is a text, whatever they were before.
        for target in &load.targets {
            if let Target::Variable(name) = target {
                session.env.assign(name, Datum::text(""))?;
            }
        }
        session.env.keep_assigned();
        let database = load.table.0.clone().or_else(|| session.env.database.clone()).ok_or_else(errors::no_database)?;
        let needed = match load.duplicates {
            Duplicates::Replace => Privileges::INSERT.union(Privileges::DELETE),
            Duplicates::Refuse | Duplicates::Ignore => Privileges::INSERT,
        };
        // Nobody else has a temporary table.
        let is_own = session.temporary.find(&database, &load.table.1).is_some();
        if is_own && session.branch.is_some() {
            return Err(errors::xa::with_temporary_table());
        }
        if !is_own {
            self.require_on_columns(session, (&database, &load.table.1), needed).await?;
        }
        let mut catalog = self.catalog_of(session).await?;
        let mut planned = match Planned::new(&catalog, session, load) {
            Err(e) if self.has_news(&e).await => {
                catalog = self.catalog_of(session).await?;
                Planned::new(&catalog, session, load)?
            }
            planned => planned?,
        };
        let table = planned.insert.table.schema.id;
        let is_kept = |kept: &Kept| kept.has_table(&database, &load.table.1);
        session.uses.begin(&self.table_locks, std::iter::once((&*planned.insert.table, true)));
        match &session.locked {
            _ if is_own => {}
            Some(locked) => locked.check_definition(&database, &load.table.1)?,
            None => Box::pin(self.wait_for_read_locks(session, is_kept)).await?,
        }
        let worked = session.worked.clone();
        if copies::is_closed_for(&catalog, vec![table], &worked) {
            let is_closed = |catalog: &Catalog| copies::is_closed_for(catalog, vec![table], &worked);
            Box::pin(self.wait_for_copies(session, is_closed)).await?;
            catalog = self.catalog_of(session).await?;
            planned = Planned::new(&catalog, session, load)?;
        }
        self.authorize_in_transaction(session, &planned.insert.names.needs).await?;
        if session.is_read_only() && !is_own {
            return Err(errors::read_only_transaction());
        }
        if load.has_long_separator {
            session.warn_error(&errors::long_separator());
        }
        Ok((catalog, planned))
    }

    /// Reads the file into the table and ends the statement, but for its answer.
    async fn load_file(
        &self,
        session: &mut Session,
        s: &mut Scratch,
        catalog: &Catalog,
        load: &Load,
        planned: &Planned,
        source: Source<'_, '_>,
    ) -> Result<Changed> {
        let reads = session.reads.clone();
        let cluster = self.cluster(catalog, &reads);
        let (before, had_transaction) = (session.savepoint, session.transaction.is_some());
        let inside = session.in_transaction();
        let in_use = session.in_use.len();
        let table = &planned.insert.table;
        if table.triggers().is_none() && !table.schema.triggers.is_empty() {
            return Err(crate::program::trigger::failures::unreadable());
        }
        if table.triggers().is_some() {
            session.in_use.push(planned.insert.table.schema.id);
        }
        session.is_own_transaction = session.is_serializable() && !inside;
        session.fix_characteristics();
        let sent = match session.reads.are_kept() {
            true => session.reading_at(&self.client).await.map(|_| ()),
            false => Ok(()),
        };
        let done = if let Err(e) = sent {
            Err(e)
        } else {
            let mut loading = Loading::new(session, s, load, planned);
            pin!(loading.run(cluster, session, s, source)).await
        };
        session.in_use.truncate(in_use);
        session.is_own_transaction = false;
        if let Ok(Changed { info: Info::Loaded { skipped: 1.., .. }, .. }) = done {
            session.reads.whole(&planned.insert.table.schema);
        }
        s.warned.tell(session);
        let done = match done {
            Ok(changed) if !session.in_transaction() && session.transaction.is_some() => {
                let committed = self.commit(session).await;
                session.forget_transaction();
                committed.map(|()| changed)
            }
            other => other,
        };
        if session.isolation.is_some() && !session.in_transaction() {
            session.forget_reading();
        }
        session.env.take_notes().iter().for_each(|e| session.warn_error(e));
        session.tell_remarks();
        match done {
            Ok(changed) => Ok(changed),
            Err(fail) => Err(self.failed(session, fail, before, inside, had_transaction, false).await.0),
        }
    }
}

/// The lengths of fields that nothing separates or encloses: those of their columns; and of the row. A column of any length takes what is left before the terminator.
///
/// # Errors
/// 1084, 1409: there is no such length.
fn widths(load: &Load, goals: &[Goal], schema: &TableSchema) -> Result<(Vec<usize>, usize)> {
    let (mut widths, mut whole) = (Vec::new(), 0);
    if !load.format.terminated.is_empty() || load.format.enclosed.is_some() {
        return Ok((widths, whole));
    }
    for goal in goals {
        let Goal::Column(column) = goal else { return Err(errors::fixed_to_variable()) };
        let ty = schema.columns[usize::from(*column)].ty;
        let is_blob = matches!(ty, ColumnType::Text { .. } | ColumnType::Blob { .. } | ColumnType::Json);
        if is_blob && load.format.line.is_empty() {
            return Err(errors::fixed_of_blobs());
        }
        let width = if is_blob { usize::MAX } else { width_of_column(schema, *column) as usize };
        whole = usize::saturating_add(whole, width);
        widths.push(width);
    }
    Ok((widths, whole))
}

impl Planned {
    fn new(catalog: &Catalog, session: &Session, load: &Load) -> Result<Planned> {
        let Plan::Insert(mut insert) = plan_text(catalog, &session.env, &load.insert(), Vec::new())? else {
            return Err(errors::internal("an INSERT that is none"));
        };
        if crate::catalog::information_schema::is_virtual(&insert.table.schema) {
            return Err(errors::virtual_table_write(&insert.table.schema.database));
        }
        let names = load.columns();
        if names.is_empty() && !load.targets.is_empty() {
            insert.places.fill(None);
        }
        let column_at = |place: usize| insert.places.iter().position(|p| *p == Some(place)).map(|c| c as u16);
        let goal = |target: &Target| match target {
            Target::Variable(name) => Some(Goal::Variable(name.clone())),
            Target::Column(name) => {
                let place = names.iter().position(|known| known.eq_ignore_ascii_case(name))?;
                column_at(place).map(Goal::Column)
            }
        };
        let goals: Vec<Goal> = match load.targets.is_empty() {
            true => (0..insert.places.len()).map_while(column_at).map(Goal::Column).collect(),
            false => load.targets.iter().filter_map(goal).collect(),
        };
        let assignments = assignments(catalog, session, load, &insert)?;
        let reads = |e: &Expr| {
            let mut columns = Vec::new();
            e.columns(&mut columns);
            !columns.is_empty()
        };
        let reads_row = assignments.iter().any(|(_, e)| reads(e));
        let widths = widths(load, &goals, &insert.table.schema)?;
        Ok(Planned { insert, goals, widths, assignments, reads_row })
    }
}

/// The expressions of SET, over rows of the table.
fn assignments(catalog: &Catalog, session: &Session, load: &Load, insert: &Insert) -> Result<Vec<(u16, Expr)>> {
    let Some(text) = load.update() else { return Ok(Vec::new()) };
    // The comment says that variables change under way: each row brings values of its own.
    match plan_text(catalog, &session.env, &format!("{text} /* := */"), Vec::new())? {
        Plan::Update(update) if update.table.schema.id == insert.table.schema.id => Ok(update.assignments),
        _ => Err(errors::not_supported("subqueries and several tables in SET of LOAD DATA")),
    }
}

/// Where the bytes of the file come from.
enum Source<'o, 'a> {
    Client(&'o mut Output<'a>),
    Here(Reader),
}

impl Source<'_, '_> {
    /// `None`: that was all.
    async fn next(&mut self) -> Result<Option<&[u8]>> {
        match self {
            Source::Client(out) => out.next_of_file().await,
            Source::Here(reader) => reader.next().await,
        }
    }
}
