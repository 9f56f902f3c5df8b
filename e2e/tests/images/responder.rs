//! A DNS server that knows one name.

use std::{
    net::{Ipv4Addr, UdpSocket},
    sync::Arc,
    thread,
};

use anyhow::{Context as _, Result};
use parking_lot::Mutex;

const HEADER: usize = 12;
const TYPE_A: [u8; 2] = [0, 1];
/// A response, authoritative, without an error.
const FLAGS: [u8; 2] = [0x84, 0];
/// The flags of the answer that there is no such name.
const NO_SUCH_NAME: [u8; 2] = [0x84, 3];

/// Answers on a socket that [`name`](Responder::start) is at 127.0.0.1, and that other names do not exist.
#[derive(Debug)]
pub(crate) struct Responder {
    asked: Arc<Mutex<Vec<String>>>,
}

impl Responder {
    /// Answers until the process ends.
    pub(crate) fn start(socket: UdpSocket, name: &'static str) -> Self {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let record = Arc::clone(&asked);
        thread::spawn(move || -> Result<()> {
            let mut buffer = [0; 512];
            loop {
                let (length, client) = socket.recv_from(&mut buffer)?;
                let Ok((question, reply)) = answer(&buffer[..length], name) else {
                    continue;
                };
                record.lock().push(question);
                socket.send_to(&reply, client)?;
            }
        });
        Self { asked }
    }

    /// The names that were asked for so far.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().clone()
    }
}

/// Returns the name that a query asks for, and the reply to it.
fn answer(query: &[u8], known: &str) -> Result<(String, Vec<u8>)> {
    let mut labels = Vec::new();
    let mut position = HEADER;
    loop {
        let length = usize::from(*query.get(position).context("a name without an end")?);
        position += 1;
        if length == 0 {
            break;
        }
        let label = query
            .get(position..position + length)
            .context("a label without an end")?;
        labels.push(String::from_utf8(label.to_vec())?);
        position += length;
    }
    let name = labels.join(".");
    let question = query.get(HEADER..position + 4).context("a question without a type")?;
    let is_known = name == known;
    let has_address = is_known && question.ends_with(&[TYPE_A, [0, 1]].concat());
    let mut reply = query.get(..2).context("no id")?.to_vec();
    reply.extend(if is_known { FLAGS } else { NO_SUCH_NAME });
    reply.extend([0, 1, 0, u8::from(has_address), 0, 0, 0, 0]);
    reply.extend(question);
    if has_address {
        // The name of the question, an address of the internet, for 60 seconds, of four bytes.
        reply.extend([0xc0, 0x0c, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
        reply.extend(Ipv4Addr::LOCALHOST.octets());
    }
    Ok((name, reply))
}
