module github.com/scanner-operator/scanner-operator/hack/cluster/programs/pause

go 1.26.0
