//! From the text of a body to its [`Program`].
//!
//! Everything that MySQL refuses when a routine is made is refused here: syntax, names of variables, labels, cursors and conditions, the order of declarations. Tables and
//! columns are looked for when a statement is run.

mod assignments;
mod blocks;
mod conditions;
mod flow;
pub(crate) mod sql_texts;

use std::{cell::RefCell, collections::BTreeSet};

use apus_types::{Column, ColumnType, collate::Collation};

use self::flow::Label;
use super::{
    DEFINITION_BYTES_MAX, Kind,
    code::{
        Argument, Block, Condition, Mode, Name, Names, Parameter, Place, Program, RowVariable, Step, VARIABLES_MAX,
        Variable, row_name,
    },
    failures,
};
use crate::{
    errors::{self, Result},
    parse::{
        charset::collation_named,
        column_type,
        digest::Syntax,
        token::{Token, Tokens},
    },
    program::trigger::Event,
    value::number_format::{self, Face},
};

/// Digits of a DECIMAL.
const DECIMAL_DIGITS_MAX: u8 = 38;
/// Statements within statements.
const DEPTH_MAX: usize = 64;

/// What the body is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Of {
    Procedure,
    Function,
    Trigger { event: Event, is_before: bool },
}

impl Of {
    /// It runs within a statement, with which it ends or not.
    pub(crate) fn is_within(self) -> bool {
        self != Of::Procedure
    }
    pub(crate) fn name(self) -> &'static str {
        match self {
            Of::Procedure => "procedure",
            Of::Function => "function",
            Of::Trigger { .. } => "trigger",
        }
    }
    fn is_after(self) -> bool {
        matches!(self, Of::Trigger { is_before: false, .. })
    }
}

pub struct Compiler<'t> {
    pub(crate) t: &'t mut Tokens,
    pub(crate) of: Of,
    syntax: Syntax,
    default: Collation,
    pub(crate) program: Program,
    names: Names,
    pub(crate) conditions: Vec<(String, Condition)>,
    /// Cursors in view.
    cursors: Vec<(String, usize)>,
    labels: Vec<Label>,
    block: usize,
    /// The body of a handler around.
    within: Option<usize>,
    depth: usize,
    /// Columns of rows that a text names.
    named: RefCell<BTreeSet<Place>>,
    /// Of the table only the name is known.
    any_column: bool,
}

impl<'t> Compiler<'t> {
    pub fn new(t: &'t mut Tokens, syntax: Syntax, default: Collation) -> Compiler<'t> {
        let mut program = Program::default();
        program.blocks.push(Block { parent: None, handlers: Vec::new() });
        Compiler {
            t,
            of: Of::Procedure,
            syntax,
            default,
            program,
            names: Names::default(),
            conditions: Vec::new(),
            cursors: Vec::new(),
            labels: Vec::new(),
            block: 0,
            within: None,
            depth: 0,
            named: RefCell::default(),
            any_column: false,
        }
    }

    /// `(IN a INT, ...)`; those of a function have no mode.
    pub fn parameters(&mut self, kind: Kind) -> Result<()> {
        self.t.expect_symbol('(')?;
        while !self.t.peek_symbol(')') {
            let has_mode = kind == Kind::Procedure;
            let mode = if has_mode && self.t.word("inout") {
                Mode::InOut
            } else if has_mode && self.t.word("out") {
                Mode::Out
            } else {
                _ = has_mode && self.t.word("in");
                Mode::In
            };
            let name = self.t.identifier()?;
            let column = column(self.t, &name, self.default)?;
            if self.names.find(&name).is_some() {
                return Err(failures::parameter_twice(&name));
            }
            self.variable(name, Some(column.clone()))?;
            self.program.parameters.push(Parameter { mode, column });
            if !self.t.symbol(',') {
                break;
            }
            if self.t.peek_symbol(')') {
                return Err(self.t.error());
            }
        }
        self.t.expect_symbol(')')
    }

    /// `RETURNS type` of a function; where the type begins.
    pub fn returns(&mut self) -> Result<Option<usize>> {
        self.t.expect("returns")?;
        self.of = Of::Function;
        let begin = self.t.offset();
        let column = column(self.t, "", self.default)?;
        if number_format::is_filled(&column) {
            return Err(errors::not_supported("ZEROFILL in RETURNS"));
        }
        // Nobody can name it.
        let place = self.variable("\u{1}".to_owned(), Some(column))?;
        self.program.returns = Some(place);
        Ok(begin)
    }

    /// The body is that of a trigger of a table with these columns; `None`: only its end is looked for.
    pub fn of_rows(&mut self, event: Event, is_before: bool, columns: Option<&[Column]>) -> Result<()> {
        self.of = Of::Trigger { event, is_before };
        self.any_column = columns.is_none();
        for is_new in [true, false] {
            if if is_new { event == Event::Delete } else { event == Event::Insert } {
                continue;
            }
            for (column, number) in columns.unwrap_or(&[]).iter().zip(0u16..).filter(|(c, _)| !c.name.starts_with('#'))
            {
                // What it may not be is told when the row is stored.
                let variable = Column { nullable: true, auto_increment: false, ..column.clone() };
                let place = self.variable(row_name(is_new, &column.name), Some(variable))?;
                self.program.variables[place].column.iter_mut().for_each(|c| c.name.clone_from(&column.name));
                self.program.rows.push(RowVariable { is_new, column: number, place, is_set: false, is_read: false });
            }
        }
        Ok(())
    }

    /// Variables that hold what they are given.
    pub fn unnamed(&mut self, mut names: impl Iterator<Item = String>) -> Result<()> {
        names.try_for_each(|name| self.variable(name, None).map(|_| ()))
    }

    /// The one statement that is the body.
    pub fn body(mut self) -> Result<Program> {
        self.statement()?;
        let named = self.named.take();
        self.program.rows.iter_mut().for_each(|row| row.is_read = named.contains(&row.place));
        self.program.rows.retain(|row| row.is_set || row.is_read);
        Ok(self.program)
    }

    fn variable(&mut self, name: String, column: Option<Column>) -> Result<Place> {
        let place = self.program.variables.len();
        if place >= VARIABLES_MAX {
            return Err(errors::not_supported(&format!("more than {VARIABLES_MAX} variables of a procedure")));
        }
        let ty = column.as_ref().map(|column| column.ty);
        let face = column.as_ref().and_then(Face::of);
        self.names = self.names.and(Name { name, place, ty, face });
        self.program.variables.push(Variable { column });
        Ok(place)
    }

    pub(crate) fn push(&mut self, step: Step) -> usize {
        self.program.steps.push(step);
        self.program.block_of.push(self.block);
        self.program.steps.len() - 1
    }

    fn here(&self) -> usize {
        self.program.steps.len()
    }

    /// A jump made earlier leads here.
    fn land(&mut self, from: usize) {
        let here = self.here();
        if let Step::Jump(to) | Step::Unless { to, .. } | Step::Leave { to, .. } | Step::Exit { to, .. } =
            &mut self.program.steps[from]
        {
            *to = here;
        }
    }

    /// Statements up to one of these words, at least one.
    fn statements(&mut self, until: &[&str]) -> Result<()> {
        if until.iter().any(|word| self.t.peek_word(word)) {
            return Err(self.t.error());
        }
        self.statements_or_none(until)
    }

    fn statements_or_none(&mut self, until: &[&str]) -> Result<()> {
        while !until.iter().any(|word| self.t.peek_word(word)) {
            self.statement()?;
            self.t.expect_symbol(';')?;
        }
        Ok(())
    }

    fn statement(&mut self) -> Result<()> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(failures::too_deep());
        }
        if self.t.behind() > DEFINITION_BYTES_MAX {
            return Err(failures::too_much());
        }
        let label = self.label()?;
        let starts = |word: &str| self.t.peek_word(word);
        if starts("begin") {
            self.begin(label)?;
        } else if starts("loop") || starts("while") || starts("repeat") {
            self.looping(label)?;
        } else if label.is_some() {
            return Err(self.t.error());
        } else if self.t.word("if") {
            self.alternatives(None)?;
            self.t.expect("if")?;
        } else if self.t.word("case") {
            let value = if self.t.peek_word("when") { None } else { Some(self.expression(&["when"])?) };
            self.t.expect("when")?;
            self.alternatives(Some(value))?;
            self.t.expect("case")?;
        } else {
            self.simple()?;
        }
        self.depth -= 1;
        Ok(())
    }

    fn simple(&mut self) -> Result<()> {
        if self.t.peek_word("leave") || self.t.peek_word("iterate") {
            return self.leave();
        }
        if self.t.word("set") {
            return self.set();
        }
        if self.t.word("call") {
            return self.call();
        }
        if self.t.word("open") {
            let cursor = self.cursor()?;
            self.push(Step::Open(cursor));
        } else if self.t.word("close") {
            let cursor = self.cursor()?;
            self.push(Step::Close(cursor));
        } else if self.t.word("fetch") {
            if !self.t.word("next") || self.t.peek_word("from") {
                self.t.word("from");
            }
            let cursor = self.cursor()?;
            self.t.expect("into")?;
            if matches!(self.t.peek(), Some(Token::Word(w)) if w.starts_with('@')) || self.t.peek_symbol('@') {
                return Err(self.t.error());
            }
            let targets = self.targets()?;
            self.push(Step::Fetch(cursor, targets));
        } else if self.t.peek_word("signal") || self.t.peek_word("resignal") {
            return self.signal();
        } else if self.t.peek_word("get") {
            return self.diagnostics();
        } else if self.t.word("do") {
            return self.evaluate();
        } else if self.t.peek_word("return") && self.t.ahead(1).is_some_and(|t| *t != Token::Symbol(';')) {
            let place = self.program.returns.ok_or_else(failures::return_outside)?;
            self.t.skip();
            if self.t.peek_word("default") && !self.t.second_is('(') {
                return Err(self.t.error());
            }
            let value = self.expression(&[])?;
            self.push(Step::Return(place, value));
        } else if self.t.peek_word("declare") || self.t.at_end() {
            return Err(self.t.error());
        } else {
            return self.sql();
        }
        Ok(())
    }

    fn call(&mut self) -> Result<()> {
        let (database, name) = self.t.name()?;
        let mut arguments = Vec::new();
        if self.t.symbol('(') {
            while !self.t.peek_symbol(')') {
                let start = self.t.position();
                let target = self.target_or_row().ok().filter(|_| self.t.peek_symbol(',') || self.t.peek_symbol(')'));
                self.t.rewind(start);
                arguments.push(Argument { value: self.expression(&[])?, target });
                if !self.t.symbol(',') {
                    break;
                }
            }
            self.t.expect_symbol(')')?;
        }
        self.push(Step::Call { database, name, arguments });
        Ok(())
    }
}

/// A variable, as the column whose values it can have.
pub fn column(t: &mut Tokens, name: &str, default: Collation) -> Result<Column> {
    let start = t.position();
    let needs_length = ["varchar", "varbinary"].into_iter().any(|word| t.peek_word(word));
    if needs_length && !t.second_is('(') {
        t.skip();
        return Err(t.error());
    }
    let mut column = column_type::typed(t, name, default)?;
    if matches!(column.ty, ColumnType::Decimal { precision, .. } if precision > DECIMAL_DIGITS_MAX) {
        return Err(errors::not_supported("DECIMAL of more than 38 digits"));
    }
    let says =
        |t: &Tokens, words: &[&str]| (start..=t.position()).any(|at| words.iter().any(|word| t.is_word_at(at, word)));
    if says(t, &["collate"]) && !says(t, &["charset", "character"]) {
        return Err(errors::not_supported("COLLATE with no CHARACTER SET of a parameter or variable"));
    }
    if t.word("collate") {
        column_type::set_collation(&mut column, collation_named(&t.identifier()?)?)?;
    }
    Ok(column)
}
