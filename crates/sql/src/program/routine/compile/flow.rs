//! Statements that lead elsewhere: IF, CASE, LOOP, WHILE, REPEAT, LEAVE and ITERATE, with their labels.

use super::{Compiler, sql_texts::SELECT};
use crate::{
    errors::Result,
    parse::token::Token,
    program::routine::{
        code::{Step, Text},
        failures,
    },
};

pub(super) struct Label {
    pub(super) name: Option<String>,
    /// Where ITERATE goes on, in a loop.
    pub(super) again: Option<usize>,
    /// Steps that leave it.
    leaves: Vec<usize>,
    /// Cursors in view around it.
    pub(super) cursors: usize,
}

impl<'t> Compiler<'t> {
    /// `name:` in front of a block or a loop.
    pub(super) fn label(&mut self) -> Result<Option<String>> {
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

    pub(super) fn open_label(&mut self, name: Option<String>, again: Option<usize>) {
        self.labels.push(Label { name, again, leaves: Vec::new(), cursors: self.cursors.len() });
    }

    /// The end of a labelled statement: who leaves it goes on here.
    pub(super) fn close_label(&mut self) -> Result<()> {
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

    pub(super) fn leave(&mut self) -> Result<()> {
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

    pub(super) fn looping(&mut self, label: Option<String>) -> Result<()> {
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
    pub(super) fn alternatives(&mut self, case: Option<Option<Text>>) -> Result<()> {
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
}
