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
mod statement;

use std::{pin::pin, rc::Rc};

use self::{
    lines::{Field, Lines, Next},
    statement::{Duplicates, Load, Target},
};
use super::{
    Changed, Cluster, Info, conflict, insert,
    new_row::{Given, Made, Making, Numbers, encode_row, triggered_row},
    triggered,
};
use crate::{
    accounts::{Privileges, Secret},
    catalog::{Catalog, copies},
    errors::{self, Result},
    expr::{Context, Expr},
    files::{Reader, encode::width_of_column},
    plan::{Insert, Plan, text::plan_text},
    server::Output,
    session::{Done, Scratch, Session, engine::SqlEngine, read_locks::Kept},
    spill::byte_strings::{self, Strings},
    value::datum::Datum,
    wire::{SqlError, capability, characters::Spoken},
};
use apus_types::{
    ColumnType, TableSchema,
    collate::{Charset, from_latin1},
};

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
        self.require_on_columns(session, (&database, &load.table.1), needed).await?;
        let mut catalog = self.catalog().await?;
        let mut planned = match Planned::new(&catalog, session, load) {
            Err(e) if self.has_news(&e).await => {
                catalog = self.catalog().await?;
                Planned::new(&catalog, session, load)?
            }
            planned => planned?,
        };
        let table = planned.insert.table.schema.id;
        let is_kept = |kept: &Kept| kept.has_table(&database, &load.table.1);
        session.uses.begin(&self.table_locks, std::iter::once((&*planned.insert.table, true)));
        match &session.locked {
            Some(locked) => locked.check_definition(&database, &load.table.1)?,
            None => Box::pin(self.wait_for_read_locks(session, is_kept)).await?,
        }
        let worked = session.worked.clone();
        if copies::is_closed_for(&catalog, vec![table], &worked) {
            let is_closed = |catalog: &Catalog| copies::is_closed_for(catalog, vec![table], &worked);
            Box::pin(self.wait_for_copies(session, is_closed)).await?;
            catalog = self.catalog().await?;
            planned = Planned::new(&catalog, session, load)?;
        }
        self.authorize_in_transaction(session, &planned.insert.names.needs).await?;
        if session.is_read_only() {
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

/// A file on its way into a table.
struct Loading<'l> {
    planned: &'l Planned,
    duplicates_are: Duplicates,
    charset: Spoken,
    lines: Lines,
    /// For each column of the table.
    cells: Vec<Cell>,
    draft: Vec<Datum<'static>>,
    draft_row: Strings,
    numbers: Numbers,
    hidden: Numbers,
    /// Rows of the file so far, and those of them that a view does not refuse.
    row: usize,
    records: u64,
    /// Of them: rows that refer to nothing.
    refused: u64,
    affected: u64,
    duplicates: u64,
    generated: u64,
}

impl<'l> Loading<'l> {
    fn new(session: &Session, s: &mut Scratch, load: &Load, planned: &'l Planned) -> Loading<'l> {
        s.images.clear();
        s.refused.clear();
        byte_strings::trim(&mut s.generated);
        byte_strings::trim(&mut s.row_numbers);
        s.warned.clear();
        Loading {
            planned,
            duplicates_are: load.duplicates,
            charset: load.format.charset,
            lines: Lines::of_fixed(load.format.clone(), load.skips, planned.widths.clone()),
            cells: Vec::new(),
            draft: Vec::new(),
            draft_row: Strings::default(),
            numbers: Numbers::new(session),
            hidden: Numbers::hidden(),
            row: 0,
            records: 0,
            refused: 0,
            affected: 0,
            duplicates: 0,
            generated: 0,
        }
    }

    async fn run(
        &mut self,
        cluster: Cluster<'_>,
        session: &mut Session,
        s: &mut Scratch,
        mut source: Source<'_, '_>,
    ) -> Done<Changed> {
        let one_by_one = triggered::is_one_by_one(&self.planned.insert);
        loop {
            match self.lines.next(self.planned.goals.len(), self.row + 1)? {
                Next::End => break,
                Next::Missing => {
                    session.env.may_go_on()?;
                    match source.next().await? {
                        Some(bytes) => self.lines.push(bytes),
                        None => self.lines.finish(),
                    }
                }
                Next::Row { is_cut } => {
                    pin!(self.add_row(cluster, session, s, is_cut)).await?;
                    if one_by_one || s.images.len() >= insert::INSERT_BATCH || s.images.byte_len() >= BATCH_BYTES_MAX {
                        pin!(self.send(cluster, session, s)).await?;
                    }
                }
            }
        }
        pin!(self.send(cluster, session, s)).await?;
        session.remember(&self.planned.insert.table.schema);
        session.env.variables.forget_insert_id();
        if self.generated != 0 {
            session.env.last_insert_id.set(self.generated);
        }
        let (records, duplicates) = (self.records - self.refused, self.duplicates);
        let is_replacing = self.duplicates_are == Duplicates::Replace;
        let (deleted, skipped) = if is_replacing { (duplicates, 0) } else { (0, duplicates) };
        Ok(Changed { affected: self.affected, last_insert_id: 0, info: Info::Loaded { records, deleted, skipped } })
    }

    /// Stores the rows that were made.
    async fn send(&mut self, cluster: Cluster<'_>, session: &mut Session, s: &mut Scratch) -> Done<()> {
        let insert = &*self.planned.insert;
        let schema = &insert.table.schema;
        if let (Some(column), Some(value)) = (schema.auto_increment_column(), self.numbers.highest()) {
            let counters = cluster.catalog.counters()?;
            cluster.auto_increment.raise(cluster.client, counters, schema, column, value).await?;
        }
        if !s.images.is_empty() {
            let outcome = match self.duplicates_are {
                Duplicates::Refuse => pin!(insert::store_made(cluster, session, s, insert)).await?,
                _ => pin!(conflict::insert_rows(cluster, session, s, insert, &[])).await?,
            };
            self.affected += outcome.affected;
            self.duplicates += outcome.duplicates;
            self.refused += outcome.refused;
            if self.generated == 0 {
                self.generated = outcome.generated;
            }
        }
        s.images.clear();
        s.generated.clear();
        s.row_numbers.clear();
        s.warned.tell(session);
        s.warned.begin_phase();
        Ok(())
    }

    /// Makes the row that was read last.
    async fn add_row(
        &mut self,
        cluster: Cluster<'_>,
        session: &mut Session,
        s: &mut Scratch,
        is_cut: bool,
    ) -> Done<()> {
        self.row += 1;
        let planned = self.planned;
        let insert = &*planned.insert;
        self.place_fields(session)?;
        self.draft_missing(session, s)?;
        if planned.reads_row {
            self.draft_columns(session, s)?;
        } else {
            self.place_assignments(session, s)?;
        }
        let made = {
            let charset = self.charset;
            let Loading { lines, cells, draft, numbers, hidden, row, records, .. } = self;
            let given = |column: usize| match cells[column] {
                Cell::Unnamed => Given::Unnamed,
                Cell::Null => Given::Null,
                Cell::Missing => Given::Missing,
                Cell::Assigned(at) => Given::Expr(&planned.assignments[at].1),
                Cell::Drafted => Given::Made(draft[column].borrowed()),
                Cell::Field(at) => {
                    Given::Value(field_of(lines.field(at), charset, insert.table.schema.columns[column].ty))
                }
            };
            // Values of AUTO_INCREMENT are taken for as many rows as have come, so that few are left over.
            let ahead = (*records as usize).min(insert::INSERT_BATCH);
            pin!(triggered_row(cluster, session, s, insert, &[], given, (*row, *row + ahead), (numbers, hidden)))
                .await?
        };
        let Made::Row(generated) = made else { return Ok(()) };
        for e in s.refused.drain(..) {
            // Of NULL it is known behind SET that it stays.
            s.warned.push((self.row, u8::from(e.errno == 1263)), e);
        }
        if let Some(failed) = insert::check_made(session, s, insert, &[])? {
            if self.is_strict() {
                return Err(failed.into());
            }
            session.env.take_notes().into_iter().for_each(|e| s.warned.push((self.row, 0), e));
            s.warned.push((self.row, 0), failed);
            s.images.pop();
            return Ok(());
        }
        s.generated.push(generated);
        s.row_numbers.push(self.row);
        self.records += 1;
        if is_cut {
            self.refuse(session, s, 3, errors::too_many_fields(self.row))?;
        }
        Ok(())
    }

    /// The rules are not those of IGNORE.
    fn is_strict(&self) -> bool {
        self.duplicates_are != Duplicates::Ignore
    }

    /// An error in strict mode, unless the rules are those of IGNORE; otherwise a warning.
    fn refuse(&self, session: &Session, s: &mut Scratch, order: u8, e: SqlError) -> Result<()> {
        if self.is_strict() && session.env.variables.strict {
            return Err(e);
        }
        s.warned.push((self.row, order), e);
        Ok(())
    }

    /// Says which field each column gets, and gives variables theirs.
    fn place_fields(&mut self, session: &Session) -> Result<()> {
        self.cells.clear();
        self.cells.resize(self.planned.insert.table.schema.columns.len(), Cell::Unnamed);
        for (at, goal) in self.planned.goals.iter().enumerate() {
            let field = self.lines.field(at);
            match goal {
                Goal::Variable(name) => session.env.assign(name, datum(field, self.charset).into_owned())?,
                Goal::Column(column) => {
                    self.cells[usize::from(*column)] = match field {
                        None => Cell::Missing,
                        Some(Field::Null) => Cell::Null,
                        Some(Field::Text(_)) => Cell::Field(at),
                    }
                }
            }
        }
        Ok(())
    }

    /// Of a row of fixed lengths what is missing is zero, not NULL, as in MySQL.
    fn draft_missing(&mut self, session: &Session, s: &mut Scratch) -> Result<()> {
        if self.planned.widths.0.is_empty() || !self.cells.contains(&Cell::Missing) {
            return Ok(());
        }
        let insert = &*self.planned.insert;
        let making = Making::new(session, insert, &[], self.row);
        self.draft.resize(self.cells.len(), Datum::Null);
        for (column, draft) in self.draft.iter_mut().enumerate() {
            if self.cells[column] == Cell::Missing {
                *draft = making.zero(&insert.table.schema.columns[column])?.into_owned();
                self.cells[column] = Cell::Drafted;
                if self.duplicates_are != Duplicates::Ignore && session.env.variables.strict {
                    return Err(errors::too_few_fields(self.row));
                }
                s.warned.push((self.row, 1), errors::too_few_fields(self.row));
            }
        }
        Ok(())
    }

    /// SET where no expression reads the row.
    fn place_assignments(&mut self, session: &Session, s: &mut Scratch) -> Result<()> {
        for (at, (column, _)) in self.planned.assignments.iter().enumerate() {
            let column = usize::from(*column);
            if self.cells[column] == Cell::Missing {
                self.refuse(session, s, 0, errors::too_few_fields(self.row))?;
            }
            self.cells[column] = Cell::Assigned(at);
        }
        Ok(())
    }

    /// SET whose expressions read the row: it is made as far as its fields go, and each assignment changes it for the next.
    fn draft_columns(&mut self, session: &Session, s: &mut Scratch) -> Done<()> {
        let insert = &*self.planned.insert;
        let schema = &insert.table.schema;
        let making = Making::new(session, insert, &[], self.row);
        let before = std::mem::take(&mut self.draft);
        for (column, cell) in self.cells.iter_mut().enumerate() {
            let given = match *cell {
                Cell::Drafted => {
                    self.draft.push(before[column].clone());
                    continue;
                }
                Cell::Field(at) => {
                    Given::Value(field_of(self.lines.field(at), self.charset, insert.table.schema.columns[column].ty))
                }
                Cell::Missing => Given::Missing,
                // What it becomes is seen when all is assigned.
                Cell::Null => Given::Made(Datum::Null),
                _ => Given::Unnamed,
            };
            self.draft.push(making.value(column, given, &mut s.refused)?.into_owned());
            if !matches!(*cell, Cell::Null | Cell::Unnamed) {
                *cell = Cell::Drafted;
            }
        }
        for (column, e) in &self.planned.assignments {
            self.draft_row.clear();
            encode_row(schema, &self.draft, &mut self.draft_row)?;
            let row = self.draft_row.get(0).unwrap_or(&[]);
            let cx = Context {
                layout: schema.layout(),
                row,
                new_row: None,
                params: &[],
                aggregates: &[],
                given: &[],
                env: &session.env,
            };
            let (at, value) = (usize::from(*column), e.eval(&cx)?.into_owned());
            if self.is_strict()
                && let Some(fault) = session.env.fault_if(session.env.variables.strict)
            {
                return Err(fault.into());
            }
            self.draft[at] = making.converted(&schema.columns[at], value, &mut s.refused)?.into_owned();
            self.cells[at] = Cell::Drafted;
        }
        Ok(())
    }
}

/// A field for a column, whose own bytes they are in a file of bytes.
fn field_of(field: Option<Field<'_>>, charset: Spoken, ty: ColumnType) -> Datum<'_> {
    match field {
        Some(Field::Text(text))
            if charset == Spoken::Own(Charset::Binary)
                && !text.is_ascii()
                && ty.collation().is_some_and(|collation| collation.charset() == Charset::Latin1) =>
        {
            Datum::text(from_latin1(text))
        }
        field => datum(field, Spoken::DEFAULT),
    }
}

/// A field as a value; a binary one is bytes where nobody says what it is.
fn datum(field: Option<Field<'_>>, charset: Spoken) -> Datum<'_> {
    match field {
        Some(Field::Text(text)) if charset == Spoken::Own(Charset::Binary) || std::str::from_utf8(text).is_err() => {
            Datum::Bytes(text.into())
        }
        Some(Field::Text(text)) => Datum::Text(text.into()),
        Some(Field::Null) | None => Datum::Null,
    }
}
