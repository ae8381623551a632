// Package gatewayapi pins the version of Gateway API. The CRDs are in the folder of its module.
package gatewayapi

import _ "sigs.k8s.io/gateway-api/apis/v1"
