package dialect

import (
	"errors"
	"fmt"
	"strings"
)

// column is a column of the macro records.
type column struct{ name, kind string }

// columnsOf parses the arguments of records after the first, such as "id bigint".
func columnsOf(args []string) (columns []column, err error) {
	for _, arg := range args {
		words := strings.Fields(arg)
		if len(words) != 2 || words[1] != "text" && words[1] != "bigint" && words[1] != "bytes" && words[1] != "double" {
			return nil, fmt.Errorf("column %q: want a name, and text, bigint, double or bytes", arg)
		}
		columns = append(columns, column{words[0], words[1]})
	}
	if len(columns) == 0 {
		return nil, errors.New("no columns")
	}
	return columns, nil
}

// call returns a macro that is a function of the database.
func call(function string) macro {
	return func(args []string) (string, error) { return function + "(" + strings.Join(args, ", ") + ")", nil }
}

// format returns a macro with n arguments.
func format(n int, text string) macro {
	return func(args []string) (string, error) {
		if len(args) != n {
			return "", fmt.Errorf("%d arguments, want %d", len(args), n)
		}
		values := make([]any, n)
		for i, arg := range args {
			values[i] = arg
		}
		return fmt.Sprintf(text, values...), nil
	}
}

// listed returns a macro that lists its arguments.
func listed(args []string) (string, error) { return strings.Join(args, ", "), nil }
