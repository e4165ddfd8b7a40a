//! From the text of a body to its [`Program`].
//!
//! Everything that MySQL refuses when a routine is made is refused here: syntax, names of variables, labels, cursors and conditions, the order of declarations. Tables and
//! columns are looked for when a statement is run.

use std::{cell::RefCell, collections::BTreeSet};

use apus_types::{Column, ColumnType, collate::Collation};

use super::{
    DEFINITION_BYTES_MAX, Kind,
    code::{
        Argument, Block, Condition, Handler, Mode, Name, Names, Parameter, Place, Program, RowVariable, Step, Target,
        Text, VARIABLES_MAX, Variable, row_name, row_word,
    },
    failures,
};
use crate::{
    admin::set::expression,
    errors::{self, Result},
    parse::{
        charset::collation_named,
        column_type,
        digest::{Digest, Form, Syntax},
        token::{Token, Tokens, is_query},
    },
    plan,
    program::trigger::Event,
    value::number_format::{self, Face},
    variables::check_name,
    wire::SqlError,
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

struct Label {
    name: Option<String>,
    /// Where ITERATE goes on, in a loop.
    again: Option<usize>,
    /// Steps that leave it.
    leaves: Vec<usize>,
    /// Cursors in view around it.
    cursors: usize,
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

    /// `name:` in front of a block or a loop.
    fn label(&mut self) -> Result<Option<String>> {
        let is_word = matches!(self.t.peek(), Some(Token::Word(_) | Token::Quoted(_)));
        if !is_word || !self.t.second_is(':') || self.t.ahead(2) == Some(&Token::Symbol('=')) {
            return Ok(None);
        }
        let name = self.t.identifier()?;
        self.t.skip();
        let is_known = |l: &Label| l.name.as_ref().is_some_and(|known| known.eq_ignore_ascii_case(&name));
        if self.labels.iter().any(is_known) {
            return Err(failures::label_twice(&name));
        }
        Ok(Some(name))
    }

    fn open_label(&mut self, name: Option<String>, again: Option<usize>) {
        self.labels.push(Label { name, again, leaves: Vec::new(), cursors: self.cursors.len() });
    }

    /// The end of a labelled statement: who leaves it goes on here.
    fn close_label(&mut self) -> Result<()> {
        let Some(label) = self.labels.pop() else { return Ok(()) };
        label.leaves.iter().for_each(|leave| self.land(*leave));
        if label.name.is_none() || !matches!(self.t.peek(), Some(Token::Word(_) | Token::Quoted(_))) {
            return Ok(());
        }
        let end = self.t.identifier()?;
        match label.name.is_some_and(|name| name.eq_ignore_ascii_case(&end)) {
            true => Ok(()),
            false => Err(failures::other_end_label(&end)),
        }
    }

    fn leave(&mut self) -> Result<()> {
        let iterates = self.t.peek_word("iterate");
        self.t.skip();
        let name = self.t.identifier()?;
        let is = |l: &Label| l.name.as_ref().is_some_and(|known| known.eq_ignore_ascii_case(&name));
        let found = self.labels.iter().rposition(is).filter(|at| !iterates || self.labels[*at].again.is_some());
        let what = if iterates { "ITERATE" } else { "LEAVE" };
        let at = found.ok_or_else(|| failures::no_label(what, &name))?;
        let label = &self.labels[at];
        let cursors = self.cursors[label.cursors..].iter().map(|(_, cursor)| *cursor).collect();
        let again = label.again.filter(|_| iterates);
        let step = self.push(Step::Leave { to: again.unwrap_or(0), cursors });
        if again.is_none() {
            self.labels[at].leaves.push(step);
        }
        Ok(())
    }

    fn looping(&mut self, label: Option<String>) -> Result<()> {
        let again = self.here();
        self.open_label(label, Some(again));
        if self.t.word("loop") {
            self.statements(&["end"])?;
            self.t.expect("end")?;
            self.t.expect("loop")?;
            self.push(Step::Jump(again));
        } else if self.t.word("while") {
            let condition = self.expression(&["do"])?;
            self.t.expect("do")?;
            let test = self.push(Step::Unless { condition, to: 0 });
            self.statements(&["end"])?;
            self.t.expect("end")?;
            self.t.expect("while")?;
            self.push(Step::Jump(again));
            self.land(test);
            self.program.behind.push((test, self.here()));
        } else {
            self.t.expect("repeat")?;
            self.statements(&["until"])?;
            self.t.expect("until")?;
            let condition = self.expression(&["end"])?;
            self.t.expect("end")?;
            self.t.expect("repeat")?;
            self.push(Step::Unless { condition, to: again });
        }
        self.close_label()
    }

    /// IF, or CASE with or without a value (behind its first WHEN), up to its END.
    fn alternatives(&mut self, case: Option<Option<Text>>) -> Result<()> {
        let (mut tests, mut ends) = (Vec::new(), Vec::new());
        let before = self.names.clone();
        let mut compared = None;
        if let Some(Some(value)) = &case {
            // Nobody can name it.
            let name = format!("#case{}", self.program.variables.len());
            let place = self.variable(name.clone(), None)?;
            let value = Text::new(value.sql.clone(), &value.names);
            tests.push(self.push(Step::Assign(place, value)));
            compared = Some(name);
        }
        let is_case = case.is_some();
        let next = if is_case { "when" } else { "elseif" };
        loop {
            let mut condition = self.expression(&["then"])?;
            if let Some(name) = &compared {
                let value = condition.sql.strip_prefix(SELECT).unwrap_or(&condition.sql);
                condition.sql = format!("{SELECT}`{name}` = ({value})");
            }
            self.t.expect("then")?;
            let test = self.push(Step::Unless { condition, to: 0 });
            tests.push(test);
            self.statements(&[next, "else", "end"])?;
            ends.push(self.push(Step::Jump(0)));
            self.land(test);
            if !self.t.word(next) {
                break;
            }
        }
        if self.t.word("else") {
            self.statements(&["end"])?;
        } else if is_case {
            tests.push(self.push(Step::NoCase));
        }
        self.t.expect("end")?;
        ends.into_iter().for_each(|end| self.land(end));
        let here = self.here();
        self.program.behind.extend(tests.into_iter().map(|test| (test, here)));
        self.names = before;
        Ok(())
    }

    fn begin(&mut self, label: Option<String>) -> Result<()> {
        self.t.expect("begin")?;
        let outer = self.block;
        let before = (self.names.clone(), self.conditions.len(), self.cursors.len(), self.program.cursors.len());
        self.open_label(label, None);
        let block = self.program.blocks.len();
        self.program.blocks.push(Block { parent: Some(outer), handlers: Vec::new() });
        let mut exits = Vec::new();
        let mut declared =
            Declared { variables: self.program.variables.len(), conditions: before.1, cursors: before.2, phase: 0 };
        while self.t.word("declare") {
            self.declare(block, &mut declared, &mut exits)?;
            self.t.expect_symbol(';')?;
        }
        self.block = block;
        self.statements_or_none(&["end"])?;
        self.t.expect("end")?;
        self.block = outer;
        exits.into_iter().for_each(|exit| self.land(exit));
        self.close_label()?;
        let cursors = before.3..self.program.cursors.len();
        if !cursors.is_empty() {
            self.push(Step::CloseAll(cursors));
        }
        self.names = before.0;
        self.conditions.truncate(before.1);
        self.cursors.truncate(before.2);
        Ok(())
    }

    fn declare(&mut self, block: usize, declared: &mut Declared, exits: &mut Vec<usize>) -> Result<()> {
        let handler = ["continue", "exit", "undo"].into_iter().find(|word| self.t.peek_word(word));
        if let Some(kind) = handler.filter(|_| self.t.second_word("handler")) {
            self.t.skip();
            self.t.skip();
            declared.phase = 2;
            return self.handler(block, kind, exits);
        }
        if self.t.second_word("cursor") {
            let name = self.t.identifier()?;
            self.t.skip();
            self.t.expect("for")?;
            if declared.phase == 2 {
                return Err(failures::cursor_late());
            }
            declared.phase = 1;
            if self.cursors[declared.cursors..].iter().any(|(known, _)| known.eq_ignore_ascii_case(&name)) {
                return Err(failures::cursor_twice(&name));
            }
            let text = self.text_of_statement()?;
            let begins = ["select", "with", "table", "values", "("];
            if !begins.iter().any(|word| text.sql.get(..word.len()).is_some_and(|t| t.eq_ignore_ascii_case(word))) {
                return Err(errors::syntax(&text.sql));
            }
            if find_into(&text.sql).is_some() {
                return Err(errors::cursor_with_into());
            }
            plan::parse(&text.sql)?;
            self.cursors.push((name, self.program.cursors.len()));
            self.program.cursors.push(text);
            return Ok(());
        }
        if declared.phase > 0 {
            return Err(failures::variable_late());
        }
        if self.t.second_word("condition") {
            let name = self.t.identifier()?;
            self.t.skip();
            self.t.expect("for")?;
            if self.conditions[declared.conditions..].iter().any(|(known, _)| known.eq_ignore_ascii_case(&name)) {
                return Err(failures::condition_twice(&name));
            }
            let condition = self.condition(false)?;
            self.conditions.push((name, condition));
            return Ok(());
        }
        self.variables(declared)
    }

    /// `a, b INT DEFAULT 1`.
    fn variables(&mut self, declared: &Declared) -> Result<()> {
        let mut names = Vec::new();
        loop {
            let name = self.t.identifier()?;
            let is_twice = names.iter().any(|known: &String| known.eq_ignore_ascii_case(&name));
            if is_twice || self.names.has_since(declared.variables, &name) {
                return Err(failures::variable_twice(&name));
            }
            names.push(name);
            if !self.t.symbol(',') {
                break;
            }
        }
        let column = column(self.t, &names[0], self.default)?;
        // The default is computed before its variables are there.
        let value = if self.t.word("default") { Some(self.expression(&[])?) } else { None };
        let of_name = |name: &String| Column { name: name.clone(), ..column.clone() };
        let places: Vec<Place> =
            names.iter().map(|name| self.variable(name.clone(), Some(of_name(name)))).collect::<Result<_>>()?;
        match value {
            None => _ = self.push(Step::Clear(places)),
            Some(value) => {
                for place in places {
                    self.push(Step::Assign(place, Text::new(value.sql.clone(), &value.names)));
                }
            }
        }
        Ok(())
    }

    fn handler(&mut self, block: usize, kind: &str, exits: &mut Vec<usize>) -> Result<()> {
        if kind == "undo" {
            return Err(self.t.error());
        }
        self.t.expect("for")?;
        let mut conditions = Vec::new();
        loop {
            let condition = self.condition(true)?;
            let known = self.program.blocks[block].handlers.iter().flat_map(|handler| &handler.conditions);
            if known.chain(&conditions).any(|known| *known == condition) {
                return Err(failures::handler_twice());
            }
            conditions.push(condition);
            if !self.t.symbol(',') {
                break;
            }
        }
        let over = self.push(Step::Jump(0));
        let labels = std::mem::take(&mut self.labels);
        let body = self.here();
        let within = self.within.replace(body);
        self.statement()?;
        self.within = within;
        self.labels = labels;
        if kind == "continue" {
            self.push(Step::Resume);
        } else {
            exits.push(self.push(Step::Exit { to: 0, within }));
        }
        self.land(over);
        self.program.blocks[block].handlers.push(Handler { conditions, body });
        Ok(())
    }

    fn cursor(&mut self) -> Result<usize> {
        let name = self.t.identifier()?;
        let found = self.cursors.iter().rev().find(|(known, _)| known.eq_ignore_ascii_case(&name));
        found.map(|(_, cursor)| *cursor).ok_or_else(|| failures::no_cursor(&name))
    }

    /// A list of variables.
    pub(crate) fn targets(&mut self) -> Result<Vec<Target>> {
        let mut targets = Vec::new();
        loop {
            targets.push(self.target()?);
            if !self.t.symbol(',') {
                return Ok(targets);
            }
        }
    }

    pub(crate) fn target(&mut self) -> Result<Target> {
        if self.t.symbol('@') || matches!(self.t.peek(), Some(Token::Word(w)) if w == "@") {
            self.t.skip();
            return Ok(Target::User(self.t.identifier()?.to_lowercase()));
        }
        let name = self.t.identifier()?;
        if let Some(user) = name.strip_prefix('@').filter(|name| !name.starts_with('@')) {
            return Ok(Target::User(user.to_lowercase()));
        }
        let found = self.names.find(&name).map(|known| Target::Variable(known.place));
        found.ok_or_else(|| errors::undeclared_variable(&name))
    }

    /// Whether the word in front of a point is that of a row.
    fn row_of(&self, word: &str) -> Option<bool> {
        row_word(word).filter(|_| matches!(self.of, Of::Trigger { .. }))
    }

    /// As [`Compiler::target`], or a column of NEW in a BEFORE trigger.
    fn target_or_row(&mut self) -> Result<Target> {
        let word = match self.t.peek() {
            Some(Token::Word(w) | Token::Quoted(w)) if self.t.second_is('.') => self.row_of(w),
            _ => None,
        };
        let Some(is_new) = word else { return self.target() };
        self.t.skip();
        self.t.skip();
        let column = self.t.identifier()?;
        if !is_new {
            return Err(failures::changes_row("OLD", ""));
        }
        let place = self.row_column(is_new, &column)?;
        if self.of.is_after() {
            return Err(failures::changes_row("NEW", "after "));
        }
        self.program.rows.iter_mut().filter(|row| row.place == place).for_each(|row| row.is_set = true);
        Ok(Target::Variable(place))
    }

    /// # Errors
    /// 1054, 1363: there is none.
    fn row_column(&self, is_new: bool, column: &str) -> Result<Place> {
        let Of::Trigger { event, .. } = self.of else { return Err(errors::undeclared_variable(column)) };
        let word = if is_new { "NEW" } else { "OLD" };
        if event == if is_new { Event::Delete } else { Event::Insert } {
            return Err(failures::no_row(word, event.name()));
        }
        if self.any_column {
            return Ok(0);
        }
        let found = self.names.find(&row_name(is_new, column)).map(|known| known.place);
        found.ok_or_else(|| errors::unknown_column(column, word))
    }

    /// An expression up to one of these words, a comma, a parenthesis that it has not opened, or the end of the statement.
    pub(crate) fn expression(&mut self, until: &[&str]) -> Result<Text> {
        let begin = self.t.offset();
        let start = self.t.position();
        let (mut depth, mut cases) = (0usize, 0usize);
        while let Some(token) = self.t.peek() {
            match token {
                Token::Symbol('(') => depth += 1,
                Token::Symbol(')') if depth == 0 => break,
                Token::Symbol(')') => depth -= 1,
                Token::Symbol(';') => break,
                Token::Symbol(',') if depth == 0 => break,
                Token::Word(word) if depth == 0 => {
                    let is = |other: &str| word.eq_ignore_ascii_case(other);
                    if is("case") {
                        cases += 1;
                    } else if is("end") && cases > 0 {
                        cases -= 1;
                    } else if cases == 0 && until.iter().any(|stop| is(stop)) {
                        break;
                    }
                }
                _ => {}
            }
            self.t.skip();
        }
        if self.t.position() == start {
            return Err(self.t.error());
        }
        let source = self.t.slice(begin, Some(self.t.behind()));
        self.value(&source)
    }

    pub(crate) fn value(&self, source: &str) -> Result<Text> {
        let mut text = self.text(source)?;
        expression(&text.sql)?;
        text.sql.insert_str(0, SELECT);
        Ok(text)
    }

    /// As a step keeps it: without comments, by the default syntax.
    fn text(&self, source: &str) -> Result<Text> {
        let mut digest = Digest::default();
        digest.scan(source.as_bytes(), Form::Plain, self.syntax)?;
        if digest.parameters > 0 {
            return Err(errors::syntax("?"));
        }
        let sql = String::from_utf8_lossy(&digest.text).into_owned();
        self.check_names(&sql)?;
        Ok(Text::new(sql, &self.names))
    }

    /// Variables of the system are known, and those of LIMIT are whole numbers.
    fn check_names(&self, sql: &str) -> Result<()> {
        let t = Tokens::new(sql);
        let mut limits = false;
        for (at, token) in t.rest().iter().enumerate() {
            if let Token::Word(word) | Token::Quoted(word) = token
                && let Some(is_new) = self.row_of(word)
                && t.ahead(at + 1) == Some(&Token::Symbol('.'))
                && at.checked_sub(1).and_then(|before| t.ahead(before)) != Some(&Token::Symbol('.'))
                && let Some(Token::Word(column) | Token::Quoted(column)) = t.ahead(at + 2)
            {
                self.named.borrow_mut().insert(self.row_column(is_new, column)?);
            }
            let Token::Word(word) = token else {
                limits &= *token == Token::Symbol(',') || matches!(token, Token::Number(_));
                continue;
            };
            if let Some(name) =
                word.strip_prefix("@@").filter(|name| !SCOPES.iter().any(|s| s.eq_ignore_ascii_case(name)))
            {
                check_name(&name.to_ascii_lowercase())?;
            }
            if limits && let Some(known) = self.names.find(word) {
                if !matches!(known.ty, None | Some(ColumnType::Int { .. })) {
                    return Err(failures::no_number(word));
                }
            } else {
                limits = word.eq_ignore_ascii_case("limit") || word.eq_ignore_ascii_case("offset");
            }
        }
        Ok(())
    }

    /// The text up to the `;`.
    fn text_of_statement(&mut self) -> Result<Text> {
        let begin = self.t.offset();
        while self.t.peek().is_some_and(|token| *token != Token::Symbol(';')) {
            self.t.skip();
        }
        let source = self.t.slice(begin, Some(self.t.behind()));
        self.text(&source)
    }

    fn sql(&mut self) -> Result<()> {
        self.refuse()?;
        let text = self.text_of_statement()?;
        if text.sql.is_empty() {
            return Err(self.t.error());
        }
        if !is_query(text.sql.as_bytes()) {
            self.push(Step::Other(text));
            return Ok(());
        }
        let Some((into, behind)) = find_into(&text.sql) else {
            plan::parse(&text.sql)?;
            let changes = ["insert", "replace", "update", "delete"];
            if self.of.is_within() && !changes.iter().any(|word| Tokens::new(&text.sql).peek_word(word)) {
                return Err(failures::returns_result(self.of.name()));
            }
            self.push(Step::Planned(text));
            return Ok(());
        };
        let mut t = Tokens::new(&text.sql[behind..]);
        if t.peek_word("outfile") || t.peek_word("dumpfile") {
            plan::parse(&plan::into::split(&text.sql, self.syntax)?.0)?;
            self.push(Step::Planned(text));
            return Ok(());
        }
        std::mem::swap(self.t, &mut t);
        let targets = self.targets();
        let rest = self.t.offset().map(|at| behind + at);
        std::mem::swap(self.t, &mut t);
        let targets = targets?;
        let rest = rest.map_or("", |at| &text.sql[at..]);
        if find_into(rest).is_some() {
            return Err(errors::into_twice());
        }
        let sql = format!("{} {rest}", text.sql[..into].trim_end());
        let sql = sql.trim_end().to_owned();
        plan::parse(&sql)?;
        self.push(Step::Into(Text::new(sql, &text.names), targets));
        Ok(())
    }

    /// DO: expressions whose values nobody sees.
    fn evaluate(&mut self) -> Result<()> {
        loop {
            let value = self.expression(&[])?;
            let before = self.names.clone();
            let place = self.variable("#done".to_owned(), None)?;
            self.names = before;
            self.push(Step::Assign(place, value));
            if !self.t.symbol(',') {
                return Ok(());
            }
        }
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

    fn set(&mut self) -> Result<()> {
        let words = ["names", "character", "charset", "password", "role", "default", "transaction", "resource"];
        let is_other =
            words.iter().any(|word| self.t.peek_word(word) && !self.t.second_is('=') && !self.t.second_is(':'));
        let of_next = SCOPES.iter().any(|word| self.t.peek_word(word)) && self.t.second_word("transaction");
        if is_other || of_next {
            let mut text = self.text_of_statement()?;
            text.sql.insert_str(0, "SET ");
            self.push(Step::Other(text));
            return Ok(());
        }
        loop {
            self.assignment()?;
            if !self.t.symbol(',') {
                return Ok(());
            }
        }
    }

    fn assignment(&mut self) -> Result<()> {
        let begin = self.t.offset();
        let start = self.t.position();
        let is_row = matches!(self.t.peek(), Some(Token::Word(w) | Token::Quoted(w)) if self.row_of(w).is_some())
            && self.t.second_is('.');
        let target = self.target_or_row();
        if is_row {
            target.as_ref().map_err(SqlError::clone)?;
        }
        if let Ok(target) = target
            && (self.t.peek_symbol('=') || self.t.peek_symbol(':'))
        {
            self.becomes()?;
            if matches!(target, Target::Variable(_)) && self.t.peek_word("default") && !self.t.second_is('(') {
                return Err(self.t.error());
            }
            let value = self.expression(&[])?;
            self.push(match target {
                Target::Variable(place) => Step::Assign(place, value),
                Target::User(name) => Step::AssignUser(name, value),
            });
            return Ok(());
        }
        self.t.rewind(start);
        let mut name = String::new();
        while self.t.peek().is_some_and(|t| !matches!(t, Token::Symbol('=' | ':' | ';' | ','))) {
            if let Some(Token::Word(word) | Token::Quoted(word)) = self.t.peek() {
                name.clone_from(word);
            }
            self.t.skip();
        }
        let target = self.t.slice(begin, Some(self.t.behind()));
        self.becomes()?;
        if self.t.at_end() || self.t.peek_symbol(';') {
            return Err(self.t.error());
        }
        let name = name.trim_start_matches('@').to_ascii_lowercase();
        check_name(&name)?;
        if self.of.is_within() && name == "autocommit" {
            return Err(failures::sets_autocommit());
        }
        let is_word =
            matches!(self.t.peek(), Some(Token::Word(w)) if self.names.find(w).is_none() && !w.starts_with('@'));
        let ends = matches!(self.t.ahead(1), None | Some(Token::Symbol(',' | ';')));
        if is_word && ends {
            let word = self.t.identifier()?;
            let text = self.text(&format!("SET {target} = {word}"))?;
            self.push(Step::Other(text));
            return Ok(());
        }
        let value = self.expression(&[])?;
        self.push(Step::SetSystem(format!("SET {target} = "), value));
        Ok(())
    }

    /// `=` or `:=`.
    fn becomes(&mut self) -> Result<()> {
        self.t.symbol(':');
        self.t.expect_symbol('=')
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

/// What there was in view, or in the program, before the DECLAREs of a block.
struct Declared {
    variables: usize,
    conditions: usize,
    cursors: usize,
    /// 1 behind a cursor, 2 behind a handler.
    phase: u8,
}

/// Of variables of the system.
const SCOPES: [&str; 3] = ["global", "session", "local"];

pub(crate) const SELECT: &str = "SELECT ";

/// Where the INTO of a query stands, and what follows.
fn find_into(sql: &str) -> Option<(usize, usize)> {
    let mut t = Tokens::new(sql);
    if ["insert", "replace", "update", "delete"].iter().any(|word| t.peek_word(word)) {
        return None;
    }
    let mut depth = 0usize;
    while let Some(token) = t.peek() {
        match token {
            Token::Symbol('(') => depth += 1,
            Token::Symbol(')') => depth = depth.saturating_sub(1),
            Token::Word(w) if depth == 0 && w.eq_ignore_ascii_case("into") => {
                let begin = t.offset()?;
                return Some((begin, begin + "into".len()));
            }
            _ => {}
        }
        t.skip();
    }
    None
}
