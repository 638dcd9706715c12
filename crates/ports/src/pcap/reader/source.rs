//! Sequential bytes of a file, with the current offset.

use std::io::{BufRead, BufReader, ErrorKind, Read};

/// Bytes read at once; a frame may be longer.
const BUFFER: usize = 256 << 10;

/// Error at some place in a file.
#[derive(Debug)]
pub(super) struct Problem(pub(super) String);

pub(super) struct Source<R> {
    inner: BufReader<R>,
    offset: u64,
}

impl<R: Read> Source<R> {
    pub(super) fn new(inner: R) -> Self {
        Self { inner: BufReader::with_capacity(BUFFER, inner), offset: 0 }
    }

    /// Returns the number of bytes read and skipped so far.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns whether the end is reached.
    pub(super) fn at_end(&mut self) -> Result<bool, Problem> {
        self.available().map(<[u8]>::is_empty)
    }

    fn available(&mut self) -> Result<&[u8], Problem> {
        loop {
            match self.inner.fill_buf() {
                // Asked again below: a borrow cannot be returned from within the loop.
                Ok(_) => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(Problem(format!("read error: {error}"))),
            }
        }
        Ok(self.inner.buffer())
    }

    /// Fills `out` with bytes of `what`.
    pub(super) fn exact(&mut self, out: &mut [u8], what: &str) -> Result<(), Problem> {
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

    /// Skips `count` bytes of `what`.
    pub(super) fn skip(&mut self, count: u64, what: &str) -> Result<(), Problem> {
        let mut left = count;
        while left > 0 {
            let there = self.available()?.len();
            let n = usize::try_from(left).map_or(there, |left| there.min(left));
            self.consume(n, what)?;
            left -= n as u64;
        }
        Ok(())
    }

    fn consume(&mut self, n: usize, what: &str) -> Result<(), Problem> {
        if n == 0 {
            return Err(Problem(format!("the file ends in the middle of {what}")));
        }
        self.inner.consume(n);
        self.offset += n as u64;
        Ok(())
    }

    /// Returns the next `N` bytes.
    pub(super) fn bytes<const N: usize>(&mut self, what: &str) -> Result<[u8; N], Problem> {
        let mut bytes = [0; N];
        self.exact(&mut bytes, what)?;
        Ok(bytes)
    }
}
