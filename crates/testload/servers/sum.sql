\set first random(1, 180000)
\set count random(2000, 18000)
SELECT sum(abalance) FROM pgbench_accounts WHERE aid BETWEEN :first AND :first + :count;
