//! Lines of a file on their way into the table: each becomes a row, and so many go in at a time.

use std::pin::pin;

use apus_types::{ColumnType, collate::Charset};

use super::{
    BATCH_BYTES_MAX, Cell, Goal, Planned, Source,
    lines::{Field, Lines, Next},
    statement::{Duplicates, Load},
};
use crate::{
    errors::{self, Result},
    exec::{
        Changed, Cluster, Info, conflict, insert,
        new_row::{Given, Made, Making, Numbers, encode_row, triggered_row},
        triggered,
    },
    expr::Context,
    session::{Done, Session, buffers::Scratch},
    spill::byte_strings::{self, Strings},
    value::datum::Datum,
    wire::{SqlError, foreign::Foreign},
};

/// A file on its way into a table.
pub(super) struct Loading<'l> {
    pub(super) planned: &'l Planned,
    duplicates_are: Duplicates,
    pub(super) charset: Charset,
    pub(super) lines: Lines,
    /// For each column of the table.
    cells: Vec<Cell>,
    draft: Vec<Datum<'static>>,
    draft_row: Strings,
    numbers: Numbers,
    hidden: Numbers,
    /// Rows of the file so far, and those of them that a view does not refuse.
    pub(super) row: usize,
    records: u64,
    /// Of them: rows that refer to nothing.
    pub(super) refused: u64,
    affected: u64,
    pub(super) duplicates: u64,
    generated: u64,
}

impl<'l> Loading<'l> {
    pub(super) fn new(session: &Session, s: &mut Scratch, load: &Load, planned: &'l Planned) -> Loading<'l> {
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

    pub(super) async fn run(
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
            let cx = Context::of_row(schema.layout(), row, &session.env);
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
fn field_of(field: Option<Field<'_>>, charset: Charset, ty: ColumnType) -> Datum<'_> {
    match field {
        Some(Field::Text(text))
            if charset == Charset::Binary
                && !text.is_ascii()
                && ty.collation().is_some_and(|collation| Foreign::of(collation.charset()).is_some()) =>
        {
            Datum::Bytes(text.into())
        }
        field => datum(field, Charset::Utf8mb4),
    }
}

/// A field as a value; a binary one is bytes where nobody says what it is.
pub(super) fn datum(field: Option<Field<'_>>, charset: Charset) -> Datum<'_> {
    match field {
        Some(Field::Text(text)) if charset == Charset::Binary || std::str::from_utf8(text).is_err() => {
            Datum::Bytes(text.into())
        }
        Some(Field::Text(text)) => Datum::Text(text.into()),
        Some(Field::Null) | None => Datum::Null,
    }
}
