//! Entities waiting on a run queue, in order (kernel: `tasks_timeline`).
//!
//! A vector sorted by key: virtual deadline under EEVDF, virtual runtime under CFS. Queues are
//! short and the wanted entity is near the front, so this touches less memory than a tree. Where
//! thousands leave a long queue at the front, a gap remains there for later insertions, and the
//! rest stays where it is.

use crate::ids::SeId;
use smallvec::SmallVec;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Node {
    pub key: i64,
    pub vruntime: i64,
    pub se: SeId,
}

/// Up to this length, closing the gap costs less than having one.
const MANY: usize = 64;

/// Entities in order of key; of equal keys the one inserted first comes first.
#[derive(Debug, Clone, Default)]
pub(crate) struct Timeline {
    /// The gap, then the entities.
    nodes: SmallVec<[Node; 1]>,
    gap: usize,
}

impl Timeline {
    /// Number of nodes.
    pub fn len(&self) -> usize {
        self.nodes.len() - self.gap
    }

    pub fn is_empty(&self) -> bool {
        self.nodes.len() == self.gap
    }

    /// The node with the least key; `None` without nodes.
    pub fn first(&self) -> Option<&Node> {
        self.nodes.get(self.gap)
    }

    /// All nodes, by key; of equal keys the one inserted first comes first.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes[self.gap..]
    }

    /// Inserts a node behind all with the same or a smaller key.
    pub fn insert(&mut self, node: Node) {
        if self.gap > 0 {
            self.insert_beside_gap(node);
            return;
        }
        // Most arrivals are late ones: search from the back first.
        match self.nodes.last() {
            Some(last) if last.key > node.key => {
                let at = self.nodes.partition_point(|n| n.key <= node.key);
                self.nodes.insert(at, node);
            }
            _ => self.nodes.push(node),
        }
    }

    /// Inserts a node where there is unused room before the first one: moves the fewer nodes.
    #[cold]
    fn insert_beside_gap(&mut self, node: Node) {
        let before = self.nodes().partition_point(|n| n.key <= node.key);
        let at = self.gap + before;
        if before < self.nodes.len() - at {
            self.nodes.copy_within(self.gap..at, self.gap - 1);
            self.gap -= 1;
            self.nodes[at - 1] = node;
            return;
        }
        self.nodes.insert(at, node);
        if self.gap > self.len() {
            self.nodes.drain(..self.gap);
            self.gap = 0;
        }
    }

    /// Removes the node of an entity, which was inserted with this key; it must be there.
    pub fn remove(&mut self, key: i64, se: SeId) {
        if self.nodes.len() > MANY || self.gap > 0 {
            self.remove_of_many(key, se);
            return;
        }
        // Most entities that leave are alone.
        if let [only] = self.nodes[..]
            && only.se == se
        {
            debug_assert_eq!(only.key, key);
            self.nodes.clear();
            return;
        }
        let at = Self::find(&self.nodes, key, se);
        self.nodes.remove(at);
    }

    /// Removes a node of a long timeline: moves the nodes on the shorter side, which may leave
    /// unused room before the first one.
    #[cold]
    fn remove_of_many(&mut self, key: i64, se: SeId) {
        let before = Self::find(self.nodes(), key, se);
        let at = self.gap + before;
        if before < self.nodes.len() - at {
            self.nodes.copy_within(self.gap..at, self.gap + 1);
            self.gap += 1;
        } else {
            self.nodes.remove(at);
        }
        if self.is_empty() {
            self.nodes.clear();
            self.gap = 0;
        }
    }

    /// Index of the node of an entity, which must be there with this key.
    fn find(nodes: &[Node], key: i64, se: SeId) -> usize {
        // Many entities that leave are the first.
        if nodes.first().is_some_and(|first| first.se == se) {
            return 0;
        }
        let from = nodes.partition_point(|n| n.key < key);
        let offset = nodes[from..].iter().position(|n| n.se == se);
        let at = from + offset.expect("an entity is removed with the key it was inserted with");
        debug_assert_eq!(nodes[at].key, key);
        at
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

    /// Insertions and removals at both ends and in the middle, of few and of many, beside a sorted
    /// vector.
    #[test]
    fn gap_changes_no_order() {
        let mut timeline = Timeline::default();
        let mut expected: Vec<(i64, SeId)> = Vec::new();
        let mut random = 1_u64;
        let mut widest = 0;
        for step in 0..20_000_u32 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let draw = (random >> 33) as usize;
            let grows = step % 2_000 < 900;
            if expected.is_empty() || draw % 4 < if grows { 3 } else { 1 } {
                let key = (draw >> 2) as i64 % 300 + i64::from(step / 10);
                let at = expected.partition_point(|&(k, _)| k <= key);
                expected.insert(at, (key, SeId(step)));
                timeline.insert(Node { key, vruntime: 0, se: SeId(step) });
            } else {
                let in_all = (draw >> 2) % expected.len();
                let (key, se) = expected.remove(if draw & 2 == 0 { in_all } else { 0 });
                timeline.remove(key, se);
            }
            widest = widest.max(timeline.gap);
            assert_eq!(timeline.len(), expected.len());
            assert_eq!(timeline.is_empty(), expected.is_empty());
            assert_eq!(timeline.first().map(|n| n.se), expected.first().map(|&(_, se)| se));
            assert!(timeline.nodes().iter().map(|n| (n.key, n.se)).eq(expected.iter().copied()));
        }
        assert!(widest > 2 * MANY, "a gap of {widest} tries nothing");
    }
}
