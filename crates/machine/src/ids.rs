//! Typed indices and the arenas they index.
//!
//! An id takes four bytes, and [`NONE`](TaskId::NONE) stands for absence, which keeps structures
//! used at every event small.

use std::marker::PhantomData;
use std::ops::{Index, IndexMut};

/// A typed index.
pub(crate) trait Id: Copy {
    /// Index of the item in its [`Arena`].
    fn ix(self) -> usize;
    /// The id of the item at this index.
    fn from_ix(ix: usize) -> Self;
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub(crate) struct $name(pub u32);

        #[allow(dead_code, reason = "not every kind of thing can be missing")]
        impl $name {
            /// No such thing.
            pub const NONE: Self = Self(u32::MAX);
            /// Whether it is [`NONE`](Self::NONE).
            pub fn is_none(self) -> bool {
                self.0 == u32::MAX
            }
            /// Whether it is the id of an item.
            pub fn is_some(self) -> bool {
                self.0 != u32::MAX
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::NONE
            }
        }

        impl Id for $name {
            fn ix(self) -> usize {
                self.0 as usize
            }
            fn from_ix(ix: usize) -> Self {
                Self(u32::try_from(ix).expect("fewer than 2^32 of a kind"))
            }
        }
    };
}

id!(TaskId);
id!(
    /// A group of tasks; 0 is the root.
    GroupId
);
id!(
    /// A group's run queue on one CPU; the first ids are the CPUs' root queues.
    CfsRqId
);
id!(
    /// An entity on run queues, of a task or a group.
    SeId
);
id!(CpuId);
id!(LockId);
id!(ChannelId);

/// A vector indexed by one kind of id.
#[derive(Debug, Clone)]
pub(crate) struct Arena<I, T> {
    items: Vec<T>,
    kind: PhantomData<I>,
}

impl<I: Id, T> Arena<I, T> {
    pub fn new() -> Self {
        Arena { items: Vec::new(), kind: PhantomData }
    }
    /// Appends an item; returns its id.
    pub fn push(&mut self, item: T) -> I {
        let id = I::from_ix(self.items.len());
        self.items.push(item);
        id
    }
    pub fn len(&self) -> usize {
        self.items.len()
    }
    /// All ids, in order of insertion.
    pub fn ids(&self) -> impl Iterator<Item = I> + use<I, T> {
        (0..self.items.len()).map(I::from_ix)
    }
    pub fn iter(&self) -> impl Iterator<Item = (I, &T)> {
        self.items.iter().enumerate().map(|(ix, item)| (I::from_ix(ix), item))
    }
}

impl<I: Id, T> Index<I> for Arena<I, T> {
    type Output = T;
    fn index(&self, id: I) -> &T {
        &self.items[id.ix()]
    }
}

impl<I: Id, T> IndexMut<I> for Arena<I, T> {
    fn index_mut(&mut self, id: I) -> &mut T {
        &mut self.items[id.ix()]
    }
}

/// A set of CPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mask(Vec<u64>);

impl Mask {
    /// The set of these CPUs, of a machine with `cpus` of them; others are left out.
    pub fn of(cpus: usize, members: impl Iterator<Item = u16>) -> Mask {
        let mut words = vec![0; cpus.div_ceil(64)];
        for cpu in members.filter(|&cpu| usize::from(cpu) < cpus) {
            words[usize::from(cpu) / 64] |= 1 << (cpu % 64);
        }
        Mask(words)
    }
    pub fn contains(&self, cpu: CpuId) -> bool {
        self.0[cpu.ix() / 64] >> (cpu.0 % 64) & 1 == 1
    }

    /// Whether exactly one CPU is in the set.
    pub fn is_one(&self) -> bool {
        self.0.iter().map(|word| word.count_ones()).sum::<u32>() == 1
    }
}
