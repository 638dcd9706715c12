//! Bytes of a file in order, and where one is.

use std::io::{BufRead, BufReader, ErrorKind, Read};

/// Read at once; a frame may be longer.
const BUFFER: usize = 256 << 10;

/// What is wrong at some place of a file.
#[derive(Debug)]
pub(super) struct Trouble(pub(super) String);

pub(super) struct Source<R> {
    inner: BufReader<R>,
    offset: u64,
}

impl<R: Read> Source<R> {
    pub(super) fn new(inner: R) -> Self {
        Self { inner: BufReader::with_capacity(BUFFER, inner), offset: 0 }
    }

    /// Bytes read and skipped so far.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Whether all has been read.
    pub(super) fn at_end(&mut self) -> Result<bool, Trouble> {
        self.available().map(<[u8]>::is_empty)
    }

    fn available(&mut self) -> Result<&[u8], Trouble> {
        loop {
            match self.inner.fill_buf() {
                // Asked again below: what was returned here could not be returned from within a loop.
                Ok(_) => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(Trouble(format!("cannot read it: {error}"))),
            }
        }
        Ok(self.inner.buffer())
    }

    /// Fills `out`; `what` is what the bytes belong to.
    pub(super) fn exact(&mut self, out: &mut [u8], what: &str) -> Result<(), Trouble> {
        let mut done = 0;
        while let Some(rest) = out.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let there = self.available()?;
            let n = there.len().min(rest.len());
            if let (Some(to), Some(from)) = (rest.get_mut(..n), there.get(..n)) {
                to.copy_from_slice(from);
            }
            self.consume(n, what)?;
            done += n;
        }
        Ok(())
    }

    /// Passes over `count` bytes, which belong to `what`.
    pub(super) fn skip(&mut self, count: u64, what: &str) -> Result<(), Trouble> {
        let mut left = count;
        while left > 0 {
            let there = self.available()?.len();
            let n = usize::try_from(left).map_or(there, |left| there.min(left));
            self.consume(n, what)?;
            left -= n as u64;
        }
        Ok(())
    }

    fn consume(&mut self, n: usize, what: &str) -> Result<(), Trouble> {
        if n == 0 {
            return Err(Trouble(format!("the file ends in the middle of {what}")));
        }
        self.inner.consume(n);
        self.offset += n as u64;
        Ok(())
    }

    /// The next `N` bytes.
    pub(super) fn bytes<const N: usize>(&mut self, what: &str) -> Result<[u8; N], Trouble> {
        let mut bytes = [0; N];
        self.exact(&mut bytes, what)?;
        Ok(bytes)
    }
}
