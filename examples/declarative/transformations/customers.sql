CREATE MATERIALIZED VIEW customers AS
SELECT customer, count(*) AS orders, max(offset) AS latest
FROM orders
GROUP BY customer;
