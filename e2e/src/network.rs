//! A network of its own for a program: a namespace in which only loopback exists, so that every port is free.

use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener},
    process::Command,
    sync::mpsc::{self, Sender},
    thread,
};

use anyhow::{Context as _, Result, anyhow, ensure};
use nix::sched::{CloneFlags, unshare};
use tokio::net::{TcpSocket, TcpStream};

type Job = Box<dyn FnOnce() + Send>;

/// The address of each namespace beside 127.0.0.1, as of a machine that others reach: one for documentation, which is nobody's.
/// A server that listens on 127.0.0.1 is not heard there.
pub(crate) const ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);

/// A network namespace with a loopback interface and no other. It ends when this value and all that run in it have ended.
#[derive(Debug)]
pub struct NetworkNamespace {
    /// What the one thread in the namespace is to do.
    jobs: Sender<Job>,
}

impl NetworkNamespace {
    /// Makes a namespace, which only root may.
    pub fn new() -> Result<Self> {
        let (jobs, queue) = mpsc::channel::<Job>();
        let (report, outcome) = mpsc::channel();
        thread::Builder::new().name("network".to_owned()).spawn(move || {
            let entered = enter();
            let is_inside = entered.is_ok();
            // The caller waits for it.
            let _ = report.send(entered);
            if is_inside {
                for job in queue {
                    job();
                }
            }
        })?;
        outcome
            .recv()
            .context("the thread of a network namespace has ended")??;
        Ok(Self { jobs })
    }

    /// Runs `job` inside: sockets that it opens, and programs that it starts, stay in the namespace.
    pub fn run<T: Send + 'static>(&self, job: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
        let (report, outcome) = mpsc::channel();
        let job = Box::new(move || {
            // The caller waits for it.
            let _ = report.send(job());
        });
        let ended = || anyhow!("the thread of a network namespace has ended");
        self.jobs.send(job).map_err(|_| ended())?;
        outcome.recv().map_err(|_| ended())?
    }

    /// Listens at an address inside.
    pub(crate) fn listen(&self, address: SocketAddr) -> Result<TcpListener> {
        self.run(move || {
            TcpListener::bind(address).with_context(|| format!("cannot listen at {address} in a network namespace"))
        })
    }

    /// Connects to an address inside.
    pub(crate) async fn connect(&self, address: SocketAddr) -> Result<TcpStream> {
        // A socket stays in the network in which it was made.
        let socket = self.run(|| Ok(TcpSocket::new_v4()?))?;
        Ok(socket.connect(address).await?)
    }
}

/// Moves the calling thread into a new namespace.
fn enter() -> Result<()> {
    unshare(CloneFlags::CLONE_NEWNET)
        .context("cannot make a network namespace: run the tests as root with the capability CAP_SYS_ADMIN")?;
    ip(&["link", "set", "lo", "up"])?;
    ip(&["address", "add", &format!("{ADDRESS}/32"), "dev", "lo"])
}

fn ip(args: &[&str]) -> Result<()> {
    let output = Command::new("ip").args(args).output();
    let output = output.context("cannot run ip; install iproute2")?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "cannot set up a network namespace: ip {}: {}",
        args.join(" "),
        stderr.trim_end()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    #[test]
    fn a_port_is_free_in_every_network_and_heard_in_its_own_alone() {
        let outside = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = outside.local_addr().unwrap();
        let network = NetworkNamespace::new().unwrap();
        let inside = network.run(move || Ok(TcpListener::bind(address)?)).unwrap();
        drop(outside);
        assert!(TcpStream::connect(address).is_err(), "the namespace is open");
        let connected = network.run(move || Ok(TcpStream::connect(address)?)).unwrap();
        let (accepted, _) = inside.accept().unwrap();
        assert_eq!(accepted.peer_addr().unwrap(), connected.local_addr().unwrap());
    }
}
