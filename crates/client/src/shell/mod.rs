//! The tokio shell: sockets and time for a [`Client`], on one thread.
//!
//! One task drives the client (actions, clock); each connection has one task that reads and writes. Requests of all tasks that are
//! ready in one turn go out in one write per link, because a link's writer is woken by the first of them and runs after those
//! already queued; answers that arrive in one read wake all their tasks in one turn. Everything ends with the last handle of
//! the client.

use std::{
    collections::BTreeMap,
    future::{Future, poll_fn},
    io,
    pin::{Pin, pin},
    task::Poll,
    time::{Duration, Instant},
};

use apus_auth::{Connector, Progress};
use apus_signal::{
    envelope::ENVELOPE_BYTES,
    hello::{HELLO_BYTES_MAX, Hello},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    task::{AbortHandle, JoinHandle, JoinSet},
};

use crate::{
    Client, ClientConfig, ClientError,
    core::{Action, ConnId},
    driver::Driver,
};

/// Bytes read at a time.
const READ_BYTES: usize = 256 << 10;

struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Client {
    /// Finds the data nodes by the seeds of `config` and links to all of them. To be called within a tokio `LocalSet`.
    ///
    /// # Errors
    /// `NoNodeAvailable` when no data node served within `connect_timeout_ms`.
    pub async fn connect(config: ClientConfig) -> Result<Client, ClientError> {
        let client = Client::new(config)?;
        let task = tokio::task::spawn_local(drive(client.driver(), Instant::now()));
        *client.inner.guard.borrow_mut() = Some(Box::new(AbortOnDrop(task)));
        client.ready().await?;
        Ok(client)
    }
}

fn nanoseconds(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

async fn drive(driver: Driver, start: Instant) {
    let mut tasks: JoinSet<()> = JoinSet::new();
    let mut running: BTreeMap<ConnId, AbortHandle> = BTreeMap::new();
    let mut sleep = pin!(tokio::time::sleep(Duration::ZERO));
    let origin = tokio::time::Instant::from_std(start);
    loop {
        let action = poll_fn(|cx| {
            loop {
                match driver.poll_action(nanoseconds(start), cx) {
                    None => return Poll::Ready(None),
                    Some(Ok(action)) => return Poll::Ready(Some(action)),
                    Some(Err(at)) => sleep.as_mut().reset(origin + Duration::from_nanos(at.min(1 << 60))),
                }
                if sleep.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
            }
        })
        .await;
        match action {
            None => return,
            Some(Action::Connect { conn, address }) => {
                while tasks.try_join_next().is_some() {}
                running.retain(|_, task| !task.is_finished());
                running.insert(conn, tasks.spawn_local(connection(driver.clone(), conn, address, start)));
            }
            Some(Action::Close { conn }) => {
                if let Some(task) = running.remove(&conn) {
                    task.abort();
                }
            }
        }
    }
}

/// A connection from beginning to end.
async fn connection(driver: Driver, conn: ConnId, address: String, start: Instant) {
    if let Ok(mut stream) = TcpStream::connect(&address).await
        && stream.set_nodelay(true).is_ok()
        && let Some(hello) = driver.opened(conn)
    {
        match greet(&driver, hello, &mut stream).await {
            Err(reason) => driver.refused(conn, format!("{address}: {reason}")),
            Ok(answer) => {
                driver.tick(nanoseconds(start));
                if driver.admitted(conn, &answer) {
                    exchange(&driver, conn, stream, start).await;
                }
            }
        }
    }
    driver.closed(conn);
}

/// Proves who we are and has the other side prove it too; reads nothing beyond that.
async fn greet(driver: &Driver, hello: Hello, stream: &mut TcpStream) -> Result<Hello, String> {
    let mut nonce = [0; apus_auth::NONCE_BYTES];
    getrandom::fill(&mut nonce).map_err(|e| format!("no random numbers from the operating system: {e}"))?;
    let (mut connector, out) = Connector::new(hello, &driver.secret(), nonce);
    write_whole(stream, &out).await.map_err(|e| e.to_string())?;
    let mut buffer = [0u8; ENVELOPE_BYTES + HELLO_BYTES_MAX];
    loop {
        let missing = connector.missing().min(buffer.len());
        let mut read = ReadBuf::new(&mut buffer[..missing]);
        poll_fn(|cx| Pin::new(&mut *stream).poll_read(cx, &mut read)).await.map_err(|e| e.to_string())?;
        if read.filled().is_empty() {
            return Err("the connection was closed during the hello".to_owned());
        }
        match connector.take(read.filled()).map_err(|e| e.to_string())? {
            Progress::More => {}
            Progress::Send(out) => write_whole(stream, &out).await.map_err(|e| e.to_string())?,
            Progress::Done(answer) => return Ok(answer),
        }
    }
}

async fn exchange(driver: &Driver, conn: ConnId, stream: TcpStream, start: Instant) {
    let (read, write) = stream.into_split();
    let mut reader = pin!(read_all(driver, conn, read, start));
    let mut writer = pin!(write_all(driver, conn, write));
    poll_fn(|cx| {
        let ended = reader.as_mut().poll(cx).is_ready() || writer.as_mut().poll(cx).is_ready();
        if ended { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

async fn write_whole(stream: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> io::Result<()> {
    let mut at = 0;
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        let written = poll_fn(|cx| Pin::new(&mut *stream).poll_write(cx, rest)).await?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        at += written;
    }
    Ok(())
}

async fn read_all(driver: &Driver, conn: ConnId, mut stream: OwnedReadHalf, start: Instant) -> io::Result<()> {
    let mut buffer = vec![0u8; READ_BYTES];
    loop {
        let mut read = ReadBuf::new(&mut buffer);
        poll_fn(|cx| Pin::new(&mut stream).poll_read(cx, &mut read)).await?;
        if read.filled().is_empty() {
            return Ok(());
        }
        driver.tick(nanoseconds(start));
        if !driver.received(conn, read.filled()) {
            return Ok(());
        }
    }
}

async fn write_all(driver: &Driver, conn: ConnId, mut stream: OwnedWriteHalf) -> io::Result<()> {
    let mut out = Vec::new();
    loop {
        if !poll_fn(|cx| driver.poll_output(conn, &mut out, cx)).await {
            return Ok(());
        }
        write_whole(&mut stream, &out).await?;
        out.clear();
    }
}
