//! `apus-chaos`: a TCP proxy that does to connections what bad networks do. A test tool; no node uses it.
//!
//! It stands between named endpoints. For each pair that dials there is a *link*: a port here that leads on to the other end. Faults
//! are set per direction, from one name to another, whoever of the two dialled, at any time, for old and new connections.
//!
//! Commands are lines on standard input; each is answered by one line, `ok ...` or `error ...`, on standard output. Its end ends the
//! proxy.
//!
//! ```text
//! link A B LISTEN TARGET    connections that A makes to LISTEN go on to TARGET, which is B; answers with the address
//! delay A B MS [JITTER]     bytes from A to B arrive so much later, and up to JITTER ms more, in order
//! rate A B BYTES            so many bytes a second from A to B; 0 for as many as there are
//! loss A B PERMILLE         a chunk from A to B resets its connection so often (TCP has no other loss that programs see)
//! cut A B                   bytes from A to B are held back; the connection stays up, and B to A goes on
//! reset A B                 all connections between the two are reset now
//! heal [A B]                the direction, or all, as if nothing had been
//! stats                     connections, bytes, resets
//! ```
//!
//! Limits: [`link::HELD_CHUNKS_MAX`] chunks are held per direction of a connection, then its sender meets TCP's back pressure; time has the
//! resolution of the event loop, a millisecond. A connection made while either direction is cut is accepted at once, but goes on to
//! its target only when both are whole. Jitter and loss follow from the seed that is the only argument.

mod command;
mod link;

use std::{io::BufRead, process::ExitCode, rc::Rc};

use tokio::{sync::mpsc, task::LocalSet};

use self::{command::Command, link::Network};

/// Commands waiting to be executed.
const COMMANDS_MAX: usize = 64;

fn main() -> ExitCode {
    let seed = std::env::args().nth(1).map_or(Ok(1), |seed| seed.parse());
    let Ok(seed) = seed else {
        eprintln!("usage: apus-chaos [SEED]; commands come on standard input, see the source");
        return ExitCode::FAILURE;
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
    match runtime {
        Ok(runtime) => {
            LocalSet::new().block_on(&runtime, obey(seed));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("apus-chaos: no event loop: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn obey(seed: u64) {
    let (send, mut receive) = mpsc::channel(COMMANDS_MAX);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if send.blocking_send(line).is_err() {
                return;
            }
        }
    });
    let network = Rc::new(Network::new(seed));
    while let Some(line) = receive.recv().await {
        let done = match Command::parse(&line) {
            Ok(command) => network.execute(command).await,
            Err(reason) => Err(reason),
        };
        match done {
            Ok(text) => println!("{}", format!("ok {text}").trim_end()),
            Err(reason) => println!("error {reason}"),
        }
    }
}
