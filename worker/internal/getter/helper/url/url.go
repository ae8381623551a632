// Package url takes the place of go-getter's package of this name.
package url

import "net/url"

// Parse is that of net/url. The original only adds drive letters of Windows.
func Parse(raw string) (*url.URL, error) { return url.Parse(raw) }
