// The module that takes the place of HashiCorp's go-getter in the worker. See getter.go.
module github.com/hashicorp/go-getter

go 1.26.0
