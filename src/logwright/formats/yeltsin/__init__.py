"""yeltsin: journals of transactions on the pages of a table, as YeltsinDB writes them."""
