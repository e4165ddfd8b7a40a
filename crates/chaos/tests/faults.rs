//! The proxy as its users see it: a process with commands on its standard input, and connections through it.

use std::{
    io::{BufRead, BufReader, ErrorKind, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// Waits in the tests are far longer than what they wait for.
const PATIENCE: Duration = Duration::from_secs(20);
/// A time in which nothing must happen.
const SILENCE: Duration = Duration::from_millis(200);

struct Proxy {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Proxy {
    fn start() -> Proxy {
        let program = env!("CARGO_BIN_EXE_apus-chaos");
        let mut child = Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Proxy { child, input, output }
    }
    fn tell(&mut self, line: &str) -> String {
        writeln!(self.input, "{line}").unwrap();
        let mut answer = String::new();
        self.output.read_line(&mut answer).unwrap();
        answer.trim_end().to_owned()
    }
    fn ok(&mut self, line: &str) -> String {
        let answer = self.tell(line);
        answer.strip_prefix("ok").unwrap_or_else(|| panic!("{line}: {answer}")).trim().to_owned()
    }
    /// A link from a to b where b sends back what it gets, and a connection over it.
    fn linked(&mut self) -> TcpStream {
        let target = echo();
        let address: SocketAddr = self.ok(&format!("link a b 127.0.0.1:0 {target}")).parse().unwrap();
        connect(address)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let mut copy = stream.try_clone().unwrap();
                let _ = std::io::copy(&mut stream, &mut copy);
            });
        }
    });
    address
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn exchange(stream: &mut TcpStream, text: &[u8]) -> Duration {
    let begin = Instant::now();
    stream.write_all(text).unwrap();
    let mut back = vec![0; text.len()];
    stream.read_exact(&mut back).unwrap();
    assert_eq!(back, text);
    begin.elapsed()
}

fn is_silent(stream: &TcpStream) -> bool {
    stream.set_read_timeout(Some(SILENCE)).unwrap();
    let seen = stream.peek(&mut [0]);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    matches!(seen, Err(e) if e.kind() == ErrorKind::WouldBlock)
}

#[test]
fn bytes_go_both_ways_and_ends_are_passed_on() {
    let mut proxy = Proxy::start();
    let mut stream = proxy.linked();
    exchange(&mut stream, b"hello");
    exchange(&mut stream, &vec![7; 3 << 20]);
    stream.write_all(b"last").unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"last");
    assert!(proxy.ok("stats").starts_with("connections 1 bytes 6291474 resets 0"), "{}", proxy.ok("stats"));
    assert!(proxy.tell("nonsense").starts_with("error "));
    assert!(proxy.tell("link a b 203.0.113.1:1 127.0.0.1:1").starts_with("error cannot listen"));
}

#[test]
fn a_cut_holds_one_direction_and_healing_delivers_it() {
    let mut proxy = Proxy::start();
    let mut stream = proxy.linked();
    exchange(&mut stream, b"before");
    // What b says no longer arrives; what a says still does, so that the answer comes as soon as the cut heals.
    proxy.ok("cut b a");
    stream.write_all(b"held").unwrap();
    assert!(is_silent(&stream));
    proxy.ok("heal b a");
    let mut back = [0; 4];
    stream.read_exact(&mut back).unwrap();
    assert_eq!(&back, b"held");
    // A new connection does not come about while either direction is cut.
    proxy.ok("cut a b");
    stream.write_all(b"held").unwrap();
    assert!(is_silent(&stream));
    proxy.ok("heal");
    stream.read_exact(&mut back).unwrap();
}

#[test]
fn a_delay_counts_once_per_direction() {
    let mut proxy = Proxy::start();
    let mut stream = proxy.linked();
    exchange(&mut stream, b"warm");
    proxy.ok("delay a b 60 20");
    let one = exchange(&mut stream, b"x");
    assert!(one >= Duration::from_millis(60), "{one:?}");
    proxy.ok("delay b a 60");
    let two = exchange(&mut stream, b"x");
    assert!(two >= Duration::from_millis(120), "{two:?}");
}

#[test]
fn bandwidth_is_bounded() {
    let mut proxy = Proxy::start();
    let mut stream = proxy.linked();
    proxy.ok("rate a b 1000000");
    let time = exchange(&mut stream, &vec![1; 200_000]);
    assert!(time >= Duration::from_millis(150), "{time:?}");
}

#[test]
fn resets_and_loss_break_connections_and_not_the_link() {
    let mut proxy = Proxy::start();
    let target = echo();
    let address: SocketAddr = proxy.ok(&format!("link a b 127.0.0.1:0 {target}")).parse().unwrap();
    let mut stream = connect(address);
    exchange(&mut stream, b"x");
    proxy.ok("reset b a");
    assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    let mut stream = connect(address);
    exchange(&mut stream, b"x");
    proxy.ok("loss a b 1000");
    stream.write_all(b"x").unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    proxy.ok("heal");
    exchange(&mut connect(address), b"x");
    assert!(proxy.ok("stats").ends_with("resets 2"), "{}", proxy.ok("stats"));
}
