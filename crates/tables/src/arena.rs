//! Memory of a table that is a tree: words in chunks, addressed by index.
//!
//! Chunks are added and never removed, so every index that a reader meets stays readable; a *block* is a run of words
//! in one chunk. The writer fills a block before it stores a reference to it (release), and retires it after it
//! replaced the last reference. Retired blocks are reused once no reader can be in them (see `publish.rs`).
//!
//! Invariants: index 0 is never a block's; a block keeps its size class while allocated; blocks of eight words and more
//! begin at a cache line.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::publish::{Published, Shared};
use crate::{TableError, prefetch};

/// Index of a word.
pub(crate) type Ref = u32;

const CHUNK_BITS: u32 = 15;
const CHUNK: usize = 1 << CHUNK_BITS;
/// 2 GiB.
const MAX_CHUNKS: usize = 1 << 13;
/// Sizes of blocks.
const CLASSES: [u32; 17] = [1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 48, 64, 96, 144, 264, 520];
/// Most words of a block.
pub(crate) const MAX_BLOCK: usize = 520;
/// Retired blocks after which the writer asks for a grace period.
const GRACE_AFTER: usize = 256;

#[repr(align(64))]
struct Chunk([AtomicU64; CHUNK]);

/// What readers see of an arena.
pub(crate) struct Space {
    chunks: Box<[OnceLock<Box<Chunk>>]>,
}

impl Space {
    fn new() -> Self {
        Self { chunks: (0..MAX_CHUNKS).map(|_| OnceLock::new()).collect() }
    }

    /// Returns a word.
    #[inline(always)]
    pub(crate) fn word(&self, at: Ref) -> Option<&AtomicU64> {
        let chunk = self.chunks.get((at >> CHUNK_BITS) as usize)?.get()?;
        chunk.0.get(at as usize % CHUNK)
    }

    /// Returns the words from `at` on, those of the block there and of any behind it in the chunk.
    #[inline(always)]
    pub(crate) fn block(&self, at: Ref) -> &[AtomicU64] {
        let chunk = self.chunks.get((at >> CHUNK_BITS) as usize).and_then(OnceLock::get);
        chunk.and_then(|chunk| chunk.0.get(at as usize % CHUNK..)).unwrap_or_default()
    }

    /// Returns the words from `at` on, as many as `len` at most.
    #[inline(always)]
    pub(crate) fn words(&self, at: Ref, len: usize) -> &[AtomicU64] {
        let block = self.block(at);
        block.get(..len).unwrap_or(block)
    }

    /// Loads a word; 0 if there is none.
    #[inline(always)]
    pub(crate) fn load(&self, at: Ref) -> u64 {
        self.word(at).map_or(0, |word| word.load(Ordering::Acquire))
    }

    #[inline(always)]
    pub(crate) fn prefetch(&self, at: Ref) {
        if let Some(word) = self.word(at) {
            prefetch::prefetch(word);
        }
    }

    /// Stores a word that readers may see.
    pub(crate) fn store(&self, at: Ref, value: u64) {
        if let Some(word) = self.word(at) {
            word.store(value, Ordering::Release);
        }
    }
}

/// An arena's version: the same words for all versions; holding it holds off reuse.
pub(crate) type View<R> = (Arc<Space>, R);

/// The writer's side of an arena, whose readers start at a root of type `R`.
pub(crate) struct Arena<R> {
    space: Arc<Space>,
    root: R,
    published: Published<View<R>, (Ref, usize)>,
    free: [Vec<Ref>; CLASSES.len()],
    /// Next word that was never allocated.
    next: Ref,
    retired: Vec<(Ref, usize)>,
    used: usize,
    /// Whether no reader can see this arena yet.
    private: bool,
}

fn class(len: usize) -> Option<usize> {
    CLASSES.iter().position(|&size| size as usize >= len)
}

impl<R: Clone> Arena<R> {
    pub(crate) fn new(root: R) -> Self {
        Self::with(Arc::new(Space::new()), root, 1)
    }

    fn with(space: Arc<Space>, root: R, next: Ref) -> Self {
        let published = Published::new((Arc::clone(&space), root.clone()));
        Self {
            space,
            root,
            published,
            free: Default::default(),
            next,
            retired: Vec::new(),
            used: 0,
            private: false,
        }
    }

    pub(crate) fn space(&self) -> &Space {
        &self.space
    }

    pub(crate) fn root(&self) -> &R {
        &self.root
    }

    pub(crate) fn shared(&self) -> Shared<View<R>> {
        self.published.shared()
    }

    /// Returns the bytes in use.
    pub(crate) fn memory(&self) -> usize {
        self.used * size_of::<u64>()
    }

    /// Copies the words to an arena that no reader sees.
    pub(crate) fn fork(&self, root: R) -> Self {
        let space = Space::new();
        for (to, from) in space.chunks.iter().zip(&self.space.chunks) {
            let Some(from) = from.get() else { break };
            let to = to.get_or_init(new_chunk);
            for (to, from) in to.0.iter().zip(&from.0) {
                to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
            }
        }
        let mut fork = Self::with(Arc::new(space), root, self.next);
        fork.free = self.free.clone();
        fork.used = self.used;
        fork.private = true;
        for &(at, class) in self.retired.iter().chain(self.published.garbage()) {
            fork.release(at, class);
        }
        fork
    }

    /// Makes room for a block, which the caller fills before referring to it.
    pub(crate) fn allocate(&mut self, len: usize) -> Result<Ref, TableError> {
        let class = class(len).ok_or(TableError::Full)?;
        let size = CLASSES.get(class).copied().unwrap_or(1);
        let reused = self.free.get_mut(class).and_then(Vec::pop);
        let at = match reused {
            Some(at) => at,
            None => self.extend(size)?,
        };
        self.used += size as usize;
        Ok(at)
    }

    fn extend(&mut self, size: u32) -> Result<Ref, TableError> {
        let align = if size >= 8 { 8 } else { 1 };
        let mut at = self.next.next_multiple_of(align);
        if at as usize % CHUNK + size as usize > CHUNK {
            at = at.next_multiple_of(CHUNK as u32);
        }
        let chunk = self.space.chunks.get((at >> CHUNK_BITS) as usize).ok_or(TableError::Full)?;
        chunk.get_or_init(new_chunk);
        self.next = at + size;
        Ok(at)
    }

    /// Allocates a block with this content.
    pub(crate) fn write(&mut self, content: &[u64]) -> Result<Ref, TableError> {
        let at = self.allocate(content.len())?;
        for (word, &value) in self.space.words(at, content.len()).iter().zip(content) {
            word.store(value, Ordering::Relaxed);
        }
        Ok(at)
    }

    /// Retires a block of `len` words to which nothing refers any more.
    pub(crate) fn retire(&mut self, at: Ref, len: usize) {
        let Some(class) = class(len) else { return };
        self.used -= CLASSES.get(class).map_or(0, |&size| size as usize);
        if self.private {
            self.release(at, class);
        } else {
            self.retired.push((at, class));
        }
    }

    /// Starts a grace period for what was retired, and reuses what no reader can see any more. Called after a change,
    /// when no reference to a retired block is left.
    pub(crate) fn settle(&mut self) {
        if self.retired.len() >= GRACE_AFTER {
            let garbage = std::mem::take(&mut self.retired);
            self.published.publish((Arc::clone(&self.space), self.root.clone()), garbage);
        }
        while let Some(garbage) = self.published.reclaim() {
            for (at, class) in garbage {
                self.release(at, class);
            }
        }
    }

    /// Makes the arena private, as a fork is: no reader may have it.
    pub(crate) fn prepare(&mut self) {
        self.private = true;
    }

    /// Ends the privacy of a fork.
    pub(crate) fn commit(&mut self) {
        self.private = false;
    }

    fn release(&mut self, at: Ref, class: usize) {
        if let Some(free) = self.free.get_mut(class) {
            free.push(at);
        }
    }
}

fn new_chunk() -> Box<Chunk> {
    Box::new(Chunk(std::array::from_fn(|_| AtomicU64::new(0))))
}

const _: () = assert!(CLASSES[CLASSES.len() - 1] as usize == MAX_BLOCK);
