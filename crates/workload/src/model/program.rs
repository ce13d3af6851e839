//! Programs. All copies of a workload share them, because programs of recordings are large.

use super::Op;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// The instructions of a task or job. Copies share one list until one of them is changed (copy on
/// write).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Program(Arc<Vec<Op>>);

impl From<Vec<Op>> for Program {
    fn from(ops: Vec<Op>) -> Program {
        Program(Arc::new(ops))
    }
}

impl Deref for Program {
    type Target = Vec<Op>;

    fn deref(&self) -> &Vec<Op> {
        &self.0
    }
}

impl DerefMut for Program {
    fn deref_mut(&mut self) -> &mut Vec<Op> {
        Arc::make_mut(&mut self.0)
    }
}

impl IntoIterator for Program {
    type Item = Op;
    type IntoIter = std::vec::IntoIter<Op>;

    fn into_iter(self) -> Self::IntoIter {
        Arc::unwrap_or_clone(self.0).into_iter()
    }
}

impl<'a> IntoIterator for &'a Program {
    type Item = &'a Op;
    type IntoIter = std::slice::Iter<'a, Op>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'a> IntoIterator for &'a mut Program {
    type Item = &'a mut Op;
    type IntoIter = std::slice::IterMut<'a, Op>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter_mut()
    }
}

impl<const N: usize> PartialEq<[Op; N]> for Program {
    fn eq(&self, other: &[Op; N]) -> bool {
        self[..] == other[..]
    }
}

impl Serialize for Program {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.as_slice().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Program {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Program, D::Error> {
        Vec::deserialize(deserializer).map(Program::from)
    }
}

/// Whether the request under way at index `pc` of a program is completed (`Done`) before another
/// one begins.
pub fn completes(program: &[Op], pc: usize) -> bool {
    let decides = program.iter().skip(pc).find(|op| {
        matches!(
            op,
            Op::Done
                | Op::Recv { .. }
                | Op::Serve { .. }
                | Op::Sleep(_)
                | Op::Every { .. }
                | Op::Begin
        )
    });
    matches!(decides, Some(Op::Done))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Span;

    #[test]
    fn a_copy_is_the_same_list_until_one_of_them_is_changed() {
        let program = Program::from(vec![Op::User(Span::Fixed(1)); 3]);
        let mut copy = program.clone();
        assert_eq!(program.as_ptr(), copy.as_ptr());
        copy.push(Op::Exit);
        assert_eq!((program.len(), copy.len()), (3, 4));
        assert_ne!(program.as_ptr(), copy.as_ptr());
    }
}
