//! The order of the entities waiting on a run queue (kernel: `tasks_timeline`).
//!
//! A vector sorted by key: virtual deadline under EEVDF, virtual runtime under CFS. Queues are short and
//! the entity that is wanted is near the front, so this touches less memory than a tree.

use crate::ids::SeId;
use smallvec::SmallVec;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Node {
    pub key: i64,
    pub vruntime: i64,
    pub se: SeId,
}

/// Entities in order of key; of equal keys the one inserted first is first.
#[derive(Debug, Clone, Default)]
pub(crate) struct Timeline {
    nodes: SmallVec<[Node; 1]>,
}

impl Timeline {
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    pub fn first(&self) -> Option<&Node> {
        self.nodes.first()
    }

    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    pub fn insert(&mut self, node: Node) {
        // Most arrivals are late ones: look from the back first.
        match self.nodes.last() {
            Some(last) if last.key > node.key => {
                let at = self.nodes.partition_point(|n| n.key <= node.key);
                self.nodes.insert(at, node);
            }
            _ => self.nodes.push(node),
        }
    }

    /// Takes out the entity, which was inserted with this key.
    pub fn remove(&mut self, key: i64, se: SeId) {
        // Most that leave are alone.
        if let [only] = self.nodes[..]
            && only.se == se
        {
            debug_assert_eq!(only.key, key);
            self.nodes.clear();
            return;
        }
        let from = self.nodes.partition_point(|n| n.key < key);
        let offset = self.nodes[from..].iter().position(|n| n.se == se);
        let at = from + offset.expect("an entity is removed with the key it was inserted with");
        debug_assert_eq!(self.nodes[at].key, key);
        self.nodes.remove(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_keys_keep_the_order_of_arrival() {
        let mut timeline = Timeline::default();
        for (se, key) in [5, 3, 5, 4, 3].into_iter().enumerate() {
            timeline.insert(Node { key, vruntime: 0, se: SeId(se as u32) });
        }
        let order = |t: &Timeline| t.nodes().iter().map(|n| n.se.0).collect::<Vec<_>>();
        assert_eq!(order(&timeline), [1, 4, 3, 0, 2]);
        timeline.remove(3, SeId(4));
        timeline.remove(5, SeId(0));
        assert_eq!(order(&timeline), [1, 3, 2]);
    }
}
