//! A TCP server that returns every byte: the far end of conversations, in a process of its own, whose number of open
//! files bounds them.
//!
//! ```text
//! echo-server ADDRESS:PORT
//! ```

use std::io::{self, Error};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

fn main() -> io::Result<()> {
    let address = std::env::args().nth(1).ok_or_else(|| Error::other("usage: echo-server ADDRESS:PORT"))?;
    let most = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most })?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(address).await?;
        loop {
            let (stream, _) = listener.accept().await?;
            tokio::spawn(echo(stream));
        }
    })
}

async fn echo(mut stream: TcpStream) -> io::Result<()> {
    let mut bytes = [0; 4096];
    loop {
        let read = stream.read(&mut bytes).await?;
        if read == 0 {
            return Ok(());
        }
        stream.write_all(bytes.get(..read).unwrap_or_default()).await?;
    }
}
