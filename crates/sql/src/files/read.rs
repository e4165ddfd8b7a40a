//! Files that statements read: LOAD DATA INFILE, piece by piece in a thread that may wait, and LOAD_FILE().

use std::{fs::File, io::Read as _, sync::Arc};

use super::{PIECE_BYTES, Places, aside};
use crate::{
    accounts::Privileges,
    errors::{self, Result},
    expr::Env,
    server::Interrupt,
    value::datum::Datum,
    wire::constants::MAX_ALLOWED_PACKET_DEFAULT,
};

/// A file that is read from its beginning to its end.
pub struct Reader {
    name: String,
    /// `None`: while another thread reads, and when that has failed.
    file: Option<File>,
    interrupt: Arc<Interrupt>,
    piece: Vec<u8>,
}

impl Reader {
    /// # Errors
    /// As [`Places::open`].
    pub async fn open(places: Places, name: &str, interrupt: &Arc<Interrupt>) -> Result<Reader> {
        let wanted = name.to_owned();
        let file = aside(interrupt, move || places.open(&wanted)).await??;
        let name = name.to_owned();
        Ok(Reader { name, file: Some(file), interrupt: interrupt.clone(), piece: vec![0; PIECE_BYTES] })
    }

    /// The next bytes; `None`: that was all.
    ///
    /// # Errors
    /// 2: it cannot be read. 1317: the statement is to end.
    pub async fn next(&mut self) -> Result<Option<&[u8]>> {
        let Some(mut file) = self.file.take() else { return Ok(None) };
        let mut piece = std::mem::take(&mut self.piece);
        let work = move || {
            piece.resize(PIECE_BYTES, 0);
            let count = file.read(&mut piece);
            (file, piece, count)
        };
        let (file, piece, count) = aside(&self.interrupt, work).await?;
        let count = count.map_err(|e| errors::file_not_read(&self.name, &e))?;
        (self.file, self.piece) = (Some(file), piece);
        Ok((count > 0).then(|| &self.piece[..count]))
    }
}

/// LOAD_FILE(): NULL for a file that is not there for the session.
///
/// # Errors
/// 1085: it is no file of bytes. 2: it cannot be read.
pub fn load_file(name: &Datum<'_>, env: &Env) -> Result<Datum<'static>> {
    let may = env.me.as_ref().is_none_or(|me| me.rights.global.contains(Privileges::FILE));
    if name.is_null() || !may {
        return Ok(Datum::Null);
    }
    let name = name.as_string();
    let file = match env.variables.places().open(&name) {
        Ok(file) => file,
        Err(e) if e.errno == errors::file_not_readable("").errno => return Err(e),
        Err(_) => return Ok(Datum::Null),
    };
    let failed = |e: std::io::Error| errors::file_not_read(&name, &e);
    let most = MAX_ALLOWED_PACKET_DEFAULT;
    if file.metadata().map_err(failed)?.len() > most as u64 {
        env.note(errors::file_too_long(most));
        return Ok(Datum::Null);
    }
    let mut bytes = Vec::new();
    file.take(most as u64).read_to_end(&mut bytes).map_err(failed)?;
    Ok(Datum::Bytes(bytes.into()))
}
